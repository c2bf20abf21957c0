"""Send under tag 5, receive under tag 7."""

# fault: unmatched receive
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(4)
if comm.rank == 0:
    comm.send(x, dest=1, tag=5)  # <- rank 0
elif comm.rank == 1:
    comm.recv(x, source=0, tag=7)  # <- rank 1
