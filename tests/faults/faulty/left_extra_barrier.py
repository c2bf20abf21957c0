"""Meet once more before rank 0 writes its file."""

# fault: left
# left: others
import numpy as np

from minidist.comm import world

comm = world()
total = comm.all_reduce(np.ones(2))
if comm.rank == 0:
    comm.barrier()  # <- rank 0
    print("written", total)
