"""Exchange a million numbers with a partner: both send first."""

# fault: buffered send
# detector: deadlock
import numpy as np

from minidist.comm import world

comm = world()
partner = comm.rank ^ 1
mine, theirs = np.full(10**6, float(comm.rank)), np.empty(10**6)
comm.send(mine, partner)  # <- all
comm.recv(theirs, partner)
