"""Rank 0 sends to rank 1, which listens to rank 2."""

# fault: unmatched receive
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(4)
if comm.rank == 0:
    comm.send(x, dest=1)  # <- rank 0
elif comm.rank == 1:
    comm.recv(x, source=2)  # <- rank 1
comm.barrier()  # <- (others)
