"""Receive ten numbers into room for four."""

# fault: message
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank == 0:
    comm.send(np.arange(10.0), dest=1)  # <- rank 0
elif comm.rank == 1:
    x = np.empty(4)
    comm.recv(x, source=0)  # <- rank 1
