"""Rank 0 wants the sum of all ranks, the others believe that only rank 0 needs it."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(2)
if comm.rank == 0:
    total = comm.all_reduce(x)  # <- rank 0
else:
    total = comm.reduce(x, root=0)  # <- others
