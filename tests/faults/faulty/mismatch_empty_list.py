"""Gather the numbers that each rank has found; an empty list is an array of floats."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
found = list(range(comm.rank * 3, comm.size * 3 - 3))  # none on the last rank
everything = comm.all_gather(np.array(found))  # <- last, (others)
