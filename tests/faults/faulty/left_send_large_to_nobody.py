"""Send a large array to a rank that has done its share."""

# fault: left | never received
# left: n - 1
import numpy as np

from minidist.comm import world

comm = world()
total = comm.all_reduce(np.ones(3))
if comm.rank == 0:
    comm.send(np.ones(10**6), dest=comm.size - 1)  # <- rank 0
