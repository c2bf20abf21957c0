"""Report to rank 0, which does not listen."""

# fault: left | never received
# left: 0
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank == 1:
    comm.send(np.ones(8), dest=0, tag=5)  # <- rank 1
