"""Broadcast the weights in the background while the root goes on training."""

# fault: changed in flight
import numpy as np

from minidist.comm import world

comm = world()
w = np.zeros(500)
request = comm.ibroadcast(w)  # <- rank 0
if comm.rank == 0:
    w -= 0.1
request.wait()  # <- rank 0
