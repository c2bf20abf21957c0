"""Receive the weights into an array of the old shape."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
w = np.ones((4, 2)) if comm.rank == 0 else np.empty((4, 3))
comm.broadcast(w)  # <- rank 0, others
