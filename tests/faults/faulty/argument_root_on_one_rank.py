"""Broadcast from the rank to the left, which rank 0 does not have."""

# fault: argument
import numpy as np

from minidist.comm import world

comm = world()
root = comm.rank - 1 if comm.rank == 0 else 0
w = comm.broadcast(np.ones(3), root=root)  # <- rank 0
