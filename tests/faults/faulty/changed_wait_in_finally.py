"""Send in the background, work in place, wait in a finally."""

# fault: changed in flight
import numpy as np

from minidist.comm import world

comm = world()
x = np.zeros((100, 3))
if comm.rank == 1:
    request = comm.isend(x, dest=0)  # <- rank 1
    try:
        np.add(x, 1.0, out=x)
    finally:
        request.wait()  # <- rank 1
elif comm.rank == 0:
    comm.recv(x, source=1)
