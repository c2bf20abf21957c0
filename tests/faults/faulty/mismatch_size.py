"""Sum histograms; the last rank made 32 bins instead of 16."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
bins = 32 if comm.rank == comm.size - 1 else 16
counts, _ = np.histogram(np.arange(100.0), bins)
total = comm.all_reduce(counts)  # <- last, others
