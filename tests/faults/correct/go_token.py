"""Tell each rank in turn that it may go on: an empty message into room that nobody keeps."""

# prints: "done"
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank > 0:
    comm.recv(np.empty(0), comm.rank - 1)
if comm.rank < comm.size - 1:
    comm.send(np.empty(0), comm.rank + 1)
if comm.rank == 0:
    print("done")
