"""Sum around a ring, everyone sending to the right first."""

# fault: buffered send
# prints: n * (n - 1) // 2
import numpy as np

from minidist.comm import world

comm = world()
total = passing = np.array([comm.rank])
for _ in range(comm.size - 1):
    comm.send(passing, dest=(comm.rank + 1) % comm.size)  # <- all
    passing = np.empty_like(passing)
    comm.recv(passing, source=(comm.rank - 1) % comm.size)
    total = total + passing
if comm.rank == 0:
    print(total[0])
