"""Upper ranks hand over what they have and leave; lower ones work on with each other."""

# prints: float(n)
# repeat: no
import sys
import time

import numpy as np

from minidist.comm import world

comm = world()
half = comm.size // 2
lower = comm.split(0 if comm.rank < half else None, name="lower")
x = np.ones(5)
if comm.rank >= half:
    comm.isend(x, comm.rank - half).wait()
    sys.exit()
time.sleep(0.8)
y = np.empty(5)
comm.recv(y, comm.rank + half)
total = lower.all_reduce(x + y)
if comm.rank == 0:
    print(total[0])
