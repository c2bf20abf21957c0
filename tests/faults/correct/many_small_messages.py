"""Send 200 messages to a rank that is slower than the sender."""

# prints: sum(range(200))
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank == 1:
    requests = [comm.isend(np.array([k]), 0) for k in range(200)]
    for request in requests:
        request.wait()
elif comm.rank == 0:
    x, total = np.empty(1, int), 0
    for _ in range(200):
        comm.recv(x, 1)
        total += x[0]
    print(total)
