"""Sum along the row; rank 0 takes the column."""

# fault: communicator
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
row = comm.split(comm.rank // 2, name="row")
column = comm.split(comm.rank % 2, name="column")
x = np.ones(3)
group = column if comm.rank == 0 else row
x = group.all_reduce(x)  # <- ranks 0 1, (others)
comm.barrier()  # <- (others)
