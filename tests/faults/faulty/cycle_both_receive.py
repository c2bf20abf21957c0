"""Exchange with a partner: both receive before they send."""

# fault: cycle
import numpy as np

from minidist.comm import world

comm = world()
partner = comm.rank ^ 1
theirs = np.empty(4)
comm.recv(theirs, partner)  # <- all
comm.send(np.full(4, float(comm.rank)), partner)
