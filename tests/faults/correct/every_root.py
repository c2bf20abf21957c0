"""Reduce to, and broadcast from, each rank in turn."""

# prints: n * n
import numpy as np

from minidist.comm import world

comm = world()
total = 0
for root in range(comm.size):
    summed = comm.reduce(np.array([1]), root=root)
    total += comm.broadcast(summed, root=root)[0]
if comm.rank == 0:
    print(total)
