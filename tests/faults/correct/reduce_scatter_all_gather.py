"""Sum in two halves: reduce-scatter and all-gather, with rows that do not divide evenly."""

# prints: float(n)
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones((2 * comm.size + 1, 2))
total = comm.all_gather(comm.reduce_scatter(x))
assert total.shape == x.shape
if comm.rank == 0:
    print(total[-1, 0])
