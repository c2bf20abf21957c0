"""Sum in pairs, then in the block that they are a part of; rank 0 sums in the block first."""

# fault: communicator
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
block = comm.split(comm.rank // (comm.size // 2), name="block")
pair = block.split(block.rank // 2, name="pair")
x = np.ones(3)
for group in [block, pair] if comm.rank == 0 else [pair, block]:
    x = group.all_reduce(x)  # <- ranks 0 1, (lower)
comm.barrier()  # <- (upper)
