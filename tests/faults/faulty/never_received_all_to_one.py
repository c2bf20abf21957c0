"""Everyone reports to rank 0, which hears the first only."""

# fault: never received
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
x = np.array([1.0])
if comm.rank > 0:
    comm.isend(x, 0, tag=comm.rank).wait()  # <- others
else:
    comm.recv(x, 1, tag=1)
comm.barrier()
