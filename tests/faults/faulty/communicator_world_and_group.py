"""Sum over a group of all ranks; rank 0 sums over the world."""

# fault: communicator
import numpy as np

from minidist.comm import world

comm = world()
everyone = comm.split(0, name="everyone")
if comm.rank == 0:
    total = comm.all_reduce(np.ones(3))  # <- rank 0
else:
    total = everyone.all_reduce(np.ones(3))  # <- others
