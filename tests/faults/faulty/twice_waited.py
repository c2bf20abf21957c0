"""Wait for one request two times."""

# fault: waited twice
import numpy as np

from minidist.comm import world

comm = world()
x, y = np.ones(3), np.empty(3)
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
request = comm.isend(x, right)  # <- others
comm.recv(y, left)
request.wait()
request.wait()  # <- others
