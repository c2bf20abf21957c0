"""Have different collectives in flight, and blocking ones in between."""

# prints: 3.0 * n
import numpy as np

from minidist.comm import world

comm = world()
total = comm.iall_reduce(np.ones(10))
table = comm.iall_gather(np.array([float(comm.rank)]))
comm.barrier()
weights = comm.ibroadcast(np.full(2, 5.0) if comm.rank == 0 else None)
largest = comm.all_reduce(np.array([comm.rank]), op="max")
assert largest[0] == comm.size - 1
assert (weights.wait() == 5).all()
assert (table.wait() == np.arange(comm.size)).all()
if comm.rank == 0:
    print(3 * total.wait()[0])
else:
    total.wait()
