"""One batch more on rank 0: 2 n + 1 rows in batches of 1."""

# fault: left
# left: others
import numpy as np

from minidist.comm import world

comm = world()
rows = np.arange(2 * comm.size + 1)[comm.rank :: comm.size]
weights = np.zeros(4)
for row in rows:
    weights += comm.all_reduce(np.full(4, float(row)))  # <- rank 0
