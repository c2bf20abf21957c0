"""Each rank is in two pairs, left and right; even ranks begin with the right one, odd ranks too."""

# fault: communicator
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
a = comm.split(comm.rank // 2, name="a")  # {0, 1} {2, 3} ...
b = comm.split((comm.rank + 1) % comm.size // 2, name="b")  # {1, 2} {3, 4} ... {n - 1, 0}
x = np.ones(2)
for pair in [a, b] if comm.rank % 2 == 0 else [b, a]:
    x = pair.all_reduce(x)  # <- all
