"""Pass a number around the ring: everyone waits for the left neighbour."""

# fault: cycle
import numpy as np

from minidist.comm import world

comm = world()
total = mine = np.array([float(comm.rank)])
for _ in range(comm.size - 1):
    theirs = np.empty(1)
    comm.recv(theirs, (comm.rank - 1) % comm.size)  # <- all
    comm.send(mine, (comm.rank + 1) % comm.size)
    mine, total = theirs, total + theirs
