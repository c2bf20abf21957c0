"""Each rank is in two pairs, left and right, and all take the left one first."""

# prints: 4.0
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
a = comm.split(comm.rank // 2, name="a")
b = comm.split((comm.rank + 1) % comm.size // 2, name="b")
x = np.ones(1)
for pair in [a, b]:
    x = pair.all_reduce(x)
if comm.rank == 0:
    print(x[0])
