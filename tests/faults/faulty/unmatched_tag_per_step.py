"""Tag messages by the step; one side counts from 1."""

# fault: unmatched receive
import numpy as np

from minidist.comm import world

comm = world()
x = np.zeros(3)
if comm.rank == 0:
    for step in range(4):
        comm.send(x + step, dest=1, tag=step)  # <- rank 0
elif comm.rank == 1:
    for step in range(1, 5):
        comm.recv(x, source=0, tag=step)  # <- rank 1
