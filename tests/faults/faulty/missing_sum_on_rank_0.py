"""Print the sum of all losses on rank 0, which is the only one that asks for it."""

# fault: missing rank | mismatch
# prints: n * (n - 1) / 2
import numpy as np

from minidist.comm import world

comm = world()
loss = np.array([float(comm.rank)])
if comm.rank == 0:
    print(comm.all_reduce(loss)[0])  # <- rank 0
comm.barrier()  # <- others
