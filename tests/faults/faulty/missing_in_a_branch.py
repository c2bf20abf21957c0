"""Clip the gradient if it is too large, which it is on some ranks only."""

# fault: missing rank | mismatch
import numpy as np

from minidist.comm import world

comm = world()
gradient = np.full(3, float(comm.rank))
if np.linalg.norm(gradient) > 0.5:
    norm = comm.all_reduce(np.linalg.norm(gradient) ** 2)  # <- others
    gradient /= np.sqrt(norm)
gradient = comm.all_gather(gradient)  # <- rank 0
