"""A parameter server that expects five gradients of each worker; worker 1 is content after three."""

# fault: left
# left: 1
import numpy as np

from minidist.comm import world

comm = world()
weights = np.ones(3)
for step in range(5):
    if comm.rank == 0:
        gradient = np.empty(3)
        for worker in range(1, comm.size):
            comm.recv(gradient, worker)  # <- rank 0
            weights -= 0.1 * gradient
    elif comm.rank == 1 and step == 3:
        break
    else:
        comm.send(weights, 0)  # <- (others)
