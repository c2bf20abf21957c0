"""Raise in the first stage's second microbatch: the other stages wait."""

# fault: died
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(3)
for microbatch in range(4):
    if comm.rank > 0:
        comm.recv(x, comm.rank - 1)
    elif microbatch == 1:
        x = x.reshape(2, 2)  # <- rank 0
    if comm.rank < comm.size - 1:
        comm.send(x, comm.rank + 1)
