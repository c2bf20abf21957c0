"""Wait for each of three messages in an inner loop that polls; between them do what the sender waits for."""

# prints: 3.0
import time

import numpy as np

from minidist.comm import world

comm = world()
x, word = np.zeros(1), np.zeros(1)
if comm.rank == 0:
    total = 0.0
    while total < 3:
        request = comm.irecv(x, 1)
        while True:
            if request.test():
                break
            time.sleep(0.001)
        total += x[0]
        comm.send(x, 1)
    print(total)
elif comm.rank == 1:
    for _ in range(3):
        time.sleep(0.3)
        comm.send(np.ones(1), 0)
        comm.recv(word, 0)
comm.barrier()
