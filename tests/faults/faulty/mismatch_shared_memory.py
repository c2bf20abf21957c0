"""Take shared memory for 8 numbers on rank 0, and for 80 elsewhere."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
n = 8 if comm.rank == 0 else 80
x = comm.allocate_shared(n, np.float64)  # <- rank 0, others
x[:] = 1.0
comm.all_reduce(x, out=x)
