"""Means of several arrays, computed as they are asked for; rank 0 asks for the first only."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
arrays = [np.ones(2), np.ones(3), np.ones(4)]
means = (comm.all_reduce(x) / comm.size for x in arrays)  # <- others
first = next(means)
if comm.rank != 0:
    rest = list(means)
comm.barrier()  # <- rank 0
