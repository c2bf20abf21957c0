"""Broadcast from the last rank, counted from 1."""

# fault: argument
import numpy as np

from minidist.comm import world

comm = world()
w = comm.broadcast(np.ones(3), root=comm.size)  # <- others
