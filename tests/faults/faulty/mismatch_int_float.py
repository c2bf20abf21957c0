"""Count hits: rank 1 divides and so has floats of the same width."""

# fault: mismatch
# prints: 6.0 * n
import numpy as np

from minidist.comm import world

comm = world()
hits = np.array([6, 12])
if comm.rank == 1:
    hits = hits / 1
total = comm.all_reduce(hits)  # <- rank 1, others
if comm.rank == 0:
    print(float(total[0]))
