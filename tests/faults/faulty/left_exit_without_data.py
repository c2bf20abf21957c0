"""Leave with sys.exit(0) where there are no rows to work on."""

# fault: left
# left: n - 1
import sys

import numpy as np

from minidist.comm import world

comm = world()
rows = np.array_split(np.arange(comm.size - 1), comm.size)[comm.rank]
if len(rows) == 0:
    sys.exit(0)
comm.broadcast(rows.astype(float) if comm.rank == 0 else None)  # <- others
