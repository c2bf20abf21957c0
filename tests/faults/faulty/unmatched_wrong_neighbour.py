"""Send to the right neighbour and listen to the right one too."""

# fault: unmatched receive
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
right = (comm.rank + 1) % comm.size
theirs = np.empty(2)
request = comm.isend(np.ones(2), right)  # <- all
comm.recv(theirs, right)  # <- all
request.wait()
