"""Wait when all went well, and in the finally again."""

# fault: waited twice
import numpy as np

from minidist.comm import world

comm = world()
x = np.zeros(3)
if comm.rank == 0:
    request = comm.irecv(x, comm.size - 1)  # <- rank 0
    try:
        request.wait()
    finally:
        request.wait()
elif comm.rank == comm.size - 1:
    comm.send(x, 0)
