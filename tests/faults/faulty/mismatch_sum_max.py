"""Find the largest value; rank 0 sums."""

# fault: mismatch
# prints: n - 1.0
import numpy as np

from minidist.comm import world

comm = world()
x = np.array([float(comm.rank)])
if comm.rank == 0:
    result = comm.all_reduce(x)  # <- rank 0
    print(result[0])
else:
    result = comm.all_reduce(x, op="max")  # <- others
