"""The server waits for a gradient, worker 1 for the weights it needs first."""

# fault: cycle
import numpy as np

from minidist.comm import ANY_SOURCE, world

comm = world()
weights, gradient = np.ones(3), np.empty(3)
if comm.rank == 0:
    for _ in range(comm.size - 1):
        worker = comm.recv(gradient, ANY_SOURCE)  # <- rank 0
        comm.send(weights - gradient, worker)
else:
    comm.recv(weights, 0)  # <- others
    comm.send(weights * 0.1, 0)
