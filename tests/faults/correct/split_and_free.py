"""Form and free 30 groups in a loop."""

# prints: 30.0 * n
import numpy as np

from minidist.comm import world

comm = world()
total = 0.0
for _ in range(30):
    group = comm.split(0, key=-comm.rank)
    total += group.all_reduce(np.ones(1))[0]
    group.free()
if comm.rank == 0:
    print(total)
