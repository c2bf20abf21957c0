"""Join tables of 3 columns; the last rank's has 4."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
table = np.ones((2, 4 if comm.rank == comm.size - 1 else 3))
whole = comm.all_gather(table)  # <- last, others
