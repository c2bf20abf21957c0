"""Exchange large arrays: send in the background, but wait before the receive."""

# fault: buffered send | cycle
import numpy as np

from minidist.comm import world

comm = world()
mine, theirs, partner = np.zeros(10**6), np.empty(10**6), comm.rank ^ 1
request = comm.isend(mine, partner)  # <- ranks 0 1, (others)
request.wait()  # <- ranks 0 1, (others)
comm.recv(theirs, partner)
