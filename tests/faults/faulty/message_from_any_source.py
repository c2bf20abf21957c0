"""Collect numbers from all workers; one of them sends two."""

# fault: message
import numpy as np

from minidist.comm import ANY_SOURCE, world

comm = world()
result = np.zeros(1)
if comm.rank == 0:
    for _ in range(comm.size - 1):
        comm.recv(result, ANY_SOURCE)  # <- rank 0
elif comm.rank == comm.size - 1:
    comm.send(np.ones(2), 0)  # <- last
else:
    comm.send(np.ones(1), 0)
