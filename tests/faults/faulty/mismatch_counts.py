"""Give rank 0 one row more of the sum, of which the others do not know."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
counts = [2] * comm.size
if comm.rank == 0:
    counts[0], counts[1] = 3, 1
mine = comm.reduce_scatter(np.ones((2 * comm.size, 3)), counts=counts)  # <- rank 0, others
