"""Post the receive early, as one should, and wait for it too early."""

# fault: cycle
import numpy as np

from minidist.comm import world

comm = world()
theirs = np.empty(1000)
request = comm.irecv(theirs, (comm.rank + 1) % comm.size)  # <- all
request.wait()  # <- all
comm.send(np.ones(1000), (comm.rank - 1) % comm.size)
