"""Rank 0 asks rank 1, which asks rank 2, which waits for rank 0's answer."""

# fault: cycle
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
x = np.zeros(2)
if comm.rank == 0:
    comm.recv(x, 1)  # <- rank 0
    comm.send(x, 2)
elif comm.rank == 1:
    comm.recv(x, 2)  # <- rank 1
    comm.send(x, 0)
elif comm.rank == 2:
    comm.recv(x, 0)  # <- rank 2
    comm.send(x, 1)
else:
    comm.recv(x, comm.rank - 1)  # <- (others)
