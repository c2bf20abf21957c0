"""Transpose a matrix whose rows are dealt over the ranks."""

# prints: True
import numpy as np

from minidist.comm import world

comm = world()
n = comm.size
whole = np.arange(float(n * n)).reshape(n, n)
mine = comm.all_to_all(whole[comm.rank].reshape(n, 1))[:, 0]
right = comm.all_reduce(np.array([(mine == whole[:, comm.rank]).all()]), op="min")
if comm.rank == 0:
    print(bool(right[0]))
