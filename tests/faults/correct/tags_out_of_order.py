"""Receive by tag in another order than was sent."""

# prints: [3.0, 2.0, 1.0]
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank == 0:
    requests = [comm.isend(np.array([float(tag)]), 1, tag) for tag in (1, 2, 3)]
    for request in requests:
        request.wait()
    answer = np.empty(3)
    comm.recv(answer, 1)
    print(answer.tolist())
elif comm.rank == 1:
    x = np.empty(3)
    for place, tag in enumerate((3, 2, 1)):
        comm.recv(x[place : place + 1], 0, tag)
    comm.send(x, 0)
