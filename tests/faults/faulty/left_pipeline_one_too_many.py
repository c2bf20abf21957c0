"""A pipeline of three microbatches, whose last stage expects a fourth."""

# fault: left
# left: n - 2
import numpy as np

from minidist.comm import world

comm = world()
last = comm.size - 1
x = np.zeros(4)
for _microbatch in range(4 if comm.rank == last else 3):
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)  # <- last
    if comm.rank < last:
        comm.send(x + 1, comm.rank + 1)
