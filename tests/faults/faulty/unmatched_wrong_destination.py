"""Rank 0 answers the wrong worker: rank 1 gets what the last one waits for."""

# fault: unmatched receive | left
# left: 0, (rank 1)
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(2)
last = comm.size - 1
if comm.rank == last:
    comm.send(x, 0)
    comm.recv(x, 0)  # <- last
elif comm.rank == 0:
    comm.recv(x, last)
    comm.isend(x, 1).wait()
