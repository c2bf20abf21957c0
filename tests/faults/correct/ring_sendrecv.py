"""Pass numbers all the way around a ring with sendrecv."""

# prints: n * (n - 1) // 2
import numpy as np

from minidist.comm import world

comm = world()
left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
passing = np.array([comm.rank])
total = passing.copy()
for _ in range(comm.size - 1):
    comm.sendrecv(passing, right, passing, left)
    total += passing
if comm.rank == 0:
    print(total[0])
