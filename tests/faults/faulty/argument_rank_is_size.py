"""Send to the right neighbour; the last rank has none."""

# fault: argument
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(2)
if comm.rank > 0:
    comm.recv(x, comm.rank - 1)
comm.send(x, comm.rank + 1)  # <- last
