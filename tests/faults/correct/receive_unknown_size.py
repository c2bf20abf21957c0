"""Receive arrays of unknown length."""

# prints: sum(range(n))
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank == 0:
    print(sum(len(comm.irecv_new(source).wait()) for source in range(1, comm.size)))
else:
    comm.send(np.zeros((comm.rank, 2)), 0)
