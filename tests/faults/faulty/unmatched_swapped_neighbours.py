"""Exchange borders around a ring, with left and right swapped in one argument."""

# fault: unmatched receive | cycle
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
u = np.ones(6)
comm.sendrecv(u[1:2], left, u[:1], left)  # <- all
comm.sendrecv(u[-2:-1], right, u[-1:], right)
