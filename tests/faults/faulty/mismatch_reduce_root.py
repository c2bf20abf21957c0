"""Sum to the last rank, whose number rank 0 takes to be 0."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
root = 0 if comm.rank == 0 else comm.size - 1
total = comm.reduce(np.ones(3), root=root)  # <- rank 0, others
