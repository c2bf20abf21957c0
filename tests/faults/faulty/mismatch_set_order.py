"""Sum two losses whose order depends on the rank: same shapes, another operation."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
for what in ("mean", "worst") if comm.rank % 2 == 0 else ("worst", "mean"):
    if what == "mean":
        mean = comm.all_reduce(np.array([1.0])) / comm.size  # <- rank 0, (even)
    else:
        worst = comm.all_reduce(np.array([1.0]), op="max")  # <- odd
