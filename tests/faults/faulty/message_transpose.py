"""Send a matrix (2, 3), receive it as (3, 2)."""

# fault: message
# prints: 1.0
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank == 1:
    comm.send(np.arange(6.0).reshape(2, 3), dest=0)  # <- rank 1
elif comm.rank == 0:
    x = np.empty((3, 2))
    comm.recv(x, source=1)  # <- rank 0
    print(x.T[0, 1])
