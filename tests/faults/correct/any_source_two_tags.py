"""A server with a receive open for each kind of request, whichever comes first."""

# prints: 3.0 * (n - 1)
import time

import numpy as np

from minidist.comm import ANY_SOURCE, world

PUSH, DONE, PULL = 1, 2, 3
comm = world()
if comm.rank == 0:
    weights, gradient, word, working = np.zeros(1), np.empty(1), np.empty(1), comm.size - 1
    push, done = comm.irecv(gradient, ANY_SOURCE, PUSH), comm.irecv(word, ANY_SOURCE, DONE)
    while working:
        if push is not None and push.test():
            worker = push.wait()
            weights += gradient
            comm.send(weights, worker, PULL)
            more = weights[0] < 3 * (comm.size - 1)
            push = comm.irecv(gradient, ANY_SOURCE, PUSH) if more else None
        if done.test():
            done.wait()
            working -= 1
            if working:
                done = comm.irecv(word, ANY_SOURCE, DONE)
        time.sleep(0.0005)
    print(weights[0])
else:
    weights = np.empty(1)
    for _ in range(3):
        comm.send(np.ones(1), 0, PUSH)
        comm.recv(weights, 0, PULL)
        time.sleep(0.002 * comm.rank)
    comm.send(np.ones(1), 0, DONE)
