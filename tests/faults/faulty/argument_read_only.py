"""Receive into an array that is a broadcast view."""

# fault: argument
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank == 0:
    out = np.broadcast_to(np.zeros(3), (2, 3))
    comm.recv(out, source=1)  # <- rank 0
elif comm.rank == 1:
    comm.send(np.ones((2, 3)), dest=0)
