"""Train on 10 rows in batches of 2, cut over the ranks: not all have as many batches; then compare accuracies."""

# fault: missing rank | mismatch
# ranks: 2 4
import numpy as np

from minidist.comm import world

comm = world()
rows = np.array_split(np.arange(10.0), comm.size)[comm.rank]  # 5 5, or 3 3 2 2
batches = len(rows[comm.rank :: 2])  # some 3, some 2, ...
for _ in range(batches):
    gradient = comm.all_reduce(np.ones(4))  # <- all
accuracies = comm.all_gather(np.array([0.9]))  # <- all
