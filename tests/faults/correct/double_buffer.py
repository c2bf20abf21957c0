"""Receive the next piece into one buffer while the other is worked on."""

# prints: 45.0
import numpy as np

from minidist.comm import world

comm = world()
pieces, buffers = 10, np.empty((2, 1000))
if comm.rank == 0:
    total, request = 0.0, comm.irecv(buffers[0], comm.size - 1)
    for k in range(pieces):
        request.wait()
        if k + 1 < pieces:
            request = comm.irecv(buffers[(k + 1) % 2], comm.size - 1)
        total += buffers[k % 2].mean()
    print(total)
elif comm.rank == comm.size - 1:
    for k in range(pieces):
        comm.send(np.full(1000, float(k)), 0)
