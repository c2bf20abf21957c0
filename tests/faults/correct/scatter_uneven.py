"""Scatter pieces of uneven length; only the root knows the rows and the counts."""

# prints: sum(k + 1 for k in range(n))
import numpy as np

from minidist.comm import world

comm = world()
root = comm.size // 2
counts = [rank + 1 for rank in range(comm.size)]
x = np.arange(sum(counts) * 2.0).reshape(-1, 2)
if comm.rank == root:
    mine = comm.scatter(x, root, counts)
else:
    mine = comm.scatter(None, root)
whole = comm.gather(mine)
if comm.rank == 0:
    print(len(whole))
