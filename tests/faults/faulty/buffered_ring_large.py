"""Sum large arrays around a ring, everyone sending to the right first."""

# fault: buffered send
# detector: deadlock
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones((300, 1000))
comm.send(x, dest=(comm.rank + 1) % comm.size)  # <- all
y = np.empty_like(x)
comm.recv(y, source=(comm.rank - 1) % comm.size)
