"""Join pieces of rank + 1 rows each."""

# prints: n * (n + 1) // 2
import numpy as np

from minidist.comm import world

comm = world()
table = comm.all_gather(np.full((comm.rank + 1, 3), float(comm.rank)))
if comm.rank == 0:
    print(len(table))
