"""Let heat flow along a line of ranks; the ends have one neighbour only."""

# prints: "flat"
import numpy as np

from minidist.comm import world

comm = world()
u = np.zeros(6)
u[1:-1] = comm.rank
left, right = comm.rank - 1, comm.rank + 1
for _ in range(30):
    requests = []
    if left >= 0:
        requests += [comm.isend(u[1:2].copy(), left), comm.irecv(u[:1], left)]
    if right < comm.size:
        requests += [comm.isend(u[-2:-1].copy(), right), comm.irecv(u[-1:], right)]
    for request in requests:
        request.wait()
    u[1:-1] = (u[:-2] + u[2:]) / 2
    worst = comm.all_reduce(np.array([np.ptp(u)]), op="max")
if comm.rank == 0:
    print("flat" if worst[0] < comm.size + 1 else "steep")
