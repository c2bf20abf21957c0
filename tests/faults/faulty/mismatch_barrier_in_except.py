"""Whoever fails meets the others at a barrier; but they are in a sum."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
text = "1.5" if comm.rank else "1,5"
try:
    value = float(text)
except ValueError:
    value = 0.0
    comm.barrier()  # <- rank 0
total = comm.all_reduce(np.array([value]))  # <- others
