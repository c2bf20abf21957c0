"""Train alone for a while, then average the weights; ranks have different amounts of local work."""

# prints: float(sum(k + 1 for k in range(n)) / n * 3)
import numpy as np

from minidist.comm import world

comm = world()
w = np.zeros(4)
for _round in range(3):
    for _ in range(comm.rank + 1):
        w = w + 1.0
    w = comm.all_reduce(w) / comm.size
if comm.rank == 0:
    print(float(w[0]))
