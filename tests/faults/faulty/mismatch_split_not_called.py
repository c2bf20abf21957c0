"""Make groups of two; rank 0 does without one."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank > 0:
    group = comm.split(comm.rank // 2)  # <- others
x = comm.all_reduce(np.ones(1))  # <- rank 0
