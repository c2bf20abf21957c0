"""Sum along columns of two rows; in one column the dtypes differ."""

# fault: mismatch
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
column = comm.split(comm.rank % 2)
x = np.ones(3, np.float32 if comm.rank == 1 else np.float64)
total = column.all_reduce(x)  # <- rank 1, (odd)
comm.barrier()
