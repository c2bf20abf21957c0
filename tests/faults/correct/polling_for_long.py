"""Ask without an end, in several ways, for messages that come late; who waits for the asker waits as long."""

# prints: 3.0
# ranks: 4 8
import time

import numpy as np

from minidist.comm import world

comm = world()
x, y = np.zeros(1), np.zeros(1)
if comm.rank == 0:
    requests = [comm.irecv(x, 1), comm.irecv(y, 2)]
    while requests:
        requests = [request for request in requests if not request.test()]
    print(x[0] + y[0])
elif comm.rank in (1, 2):
    time.sleep(0.5 * comm.rank)
    comm.send(np.array([float(comm.rank)]), 0)
request, done = comm.iall_reduce(x), False
while not done:
    done = request.test()
