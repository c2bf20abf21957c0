"""Groups that call different numbers of collectives."""

# prints: n
import numpy as np

from minidist.comm import world

comm = world()
color = comm.rank % 2
group = comm.split(color)
for _ in range(1 + 9 * color):
    group.all_reduce(np.ones(2))
    group.barrier()
count = comm.all_reduce(np.array([1]))
if comm.rank == 0:
    print(count[0])
