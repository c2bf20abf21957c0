"""Move some megabytes by sums, broadcasts and messages."""

# prints: float(n)
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(400_000)
total = comm.all_reduce(x)
comm.broadcast(x, root=comm.size - 1)
comm.sendrecv(x, comm.rank ^ 1, x, comm.rank ^ 1)
if comm.rank == 0:
    print(total[-1])
