"""End the program with sys.exit(0) on all ranks, at different times."""

# prints: float(n)
# repeat: no
import sys
import time

import numpy as np

from minidist.comm import world

comm = world()
total = comm.all_reduce(np.ones(1))
if comm.rank == 0:
    print(total[0])
    time.sleep(0.4)
sys.exit(0)
