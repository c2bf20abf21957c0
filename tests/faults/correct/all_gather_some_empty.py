"""Gather what each rank has found: the first has nothing, the others more and more."""

# prints: sum(range(n))
import numpy as np

from minidist.comm import world

comm = world()
found = np.arange(comm.rank * 2, dtype=np.int64).reshape(comm.rank, 2)
everything = comm.all_gather(found)
if comm.rank == 0:
    print(len(everything))
