"""Sum, share and join 0-d values and Python numbers."""

# prints: n * 1.5
import numpy as np

from minidist.comm import world

comm = world()
total = comm.all_reduce(1.5)
assert total.shape == ()
assert comm.broadcast(np.float64(comm.rank)).shape == ()
assert comm.all_gather(comm.rank).shape == (comm.size,)
if comm.rank == 0:
    print(float(total))
