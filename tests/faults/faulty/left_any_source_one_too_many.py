"""Count the results of n workers; there are n - 1."""

# fault: left
# left: others
import numpy as np

from minidist.comm import ANY_SOURCE, world

comm = world()
result = np.array([float(comm.rank)])
if comm.rank == 0:
    for _ in range(comm.size):
        comm.recv(result, ANY_SOURCE)  # <- rank 0
else:
    comm.send(result, 0)
