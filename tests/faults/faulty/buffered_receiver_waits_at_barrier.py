"""Send, meet, receive: only a buffer lets the sender come to the barrier."""

# fault: buffered send | missing rank
import numpy as np

from minidist.comm import world

comm = world()
x = np.array([1.0, 2.0])
if comm.rank == 0:
    comm.send(x, 1)  # <- rank 0
comm.barrier()  # <- rank 1, (others)
if comm.rank == 1:
    comm.recv(x, 0)
