"""Overlap the sum with work, but on the last rank."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(1000)
if comm.rank == comm.size - 1:
    total = comm.all_reduce(x)  # <- last
else:
    request = comm.iall_reduce(x)  # <- others
    total = request.wait()  # <- others
