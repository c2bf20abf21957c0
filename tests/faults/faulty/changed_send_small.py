"""Send a small array in the background and change it before the wait."""

# fault: changed in flight
# prints: 0.0
import numpy as np

from minidist.comm import world

comm = world()
x = np.zeros(4)
if comm.rank == 0:
    request = comm.isend(x, dest=comm.size - 1)  # <- rank 0
    x[2] = 7.0
    request.wait()  # <- rank 0
elif comm.rank == comm.size - 1:
    comm.recv(x, source=0)
    print(x[2])
