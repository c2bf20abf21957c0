"""A pipeline that sends in the background and waits for all its sends at the end, the last first."""

# prints: 10.0 + 5 * n - 5
import numpy as np

from minidist.comm import world

comm = world()
x, sent = np.zeros((5, 2)), []
for m in range(5):
    if comm.rank > 0:
        comm.recv(x[m], comm.rank - 1, tag=m)
    else:
        x[m] = m
    if comm.rank < comm.size - 1:
        sent.append(comm.isend(x[m] + 1, comm.rank + 1, tag=m))
for request in reversed(sent):
    request.wait()
total = comm.broadcast(np.array([x[:, 0].sum()]), root=comm.size - 1)
if comm.rank == 0:
    print(total[0])
