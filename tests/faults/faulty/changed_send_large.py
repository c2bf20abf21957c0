"""Send a large array in the background and change it before the wait."""

# fault: changed in flight
# prints: 0.0
import numpy as np

from minidist.comm import world

comm = world()
x = np.zeros(10**6)
if comm.rank == 1:
    request = comm.isend(x, dest=0)  # <- rank 1
    x += 1.0
    request.wait()  # <- rank 1
elif comm.rank == 0:
    comm.recv(x, source=1)
    print(x[-1])
