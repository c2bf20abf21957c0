"""Send in the background and forget the request."""

# fault: never waited
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(3)
if comm.rank == 0:
    comm.isend(x, dest=1)  # <- rank 0
elif comm.rank == 1:
    comm.recv(x, source=0)
comm.barrier()
