"""Exchange one number with a partner: both send first, which a buffer makes work."""

# fault: buffered send
import numpy as np

from minidist.comm import world

comm = world()
partner = comm.rank ^ 1
mine, theirs = np.array([float(comm.rank)]), np.empty(1)
comm.send(mine, partner)  # <- all
comm.recv(theirs, partner)
