"""Use a communicator of one rank, and the world beside it."""

# prints: float(n)
import numpy as np

from minidist.comm import world

comm = world()
me = comm.split(comm.rank, name="me")
assert me.all_reduce(np.ones(2))[0] == 1
me.barrier()
total = comm.all_reduce(np.ones(2))
if comm.rank == 0:
    print(total[0])
