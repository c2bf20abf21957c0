"""Hand out the weights: the others believe that a broadcast is received like a message."""

# fault: missing rank
import numpy as np

from minidist.comm import world

comm = world()
w = np.zeros((4, 3))
if comm.rank == 0:
    w[:] = 1.0
    comm.broadcast(w, root=0)  # <- rank 0
else:
    comm.recv(w, source=0)  # <- others
