"""Hand out 20 jobs to whoever asks, and say stop at the end."""

# prints: sum(k * k for k in range(20))
import numpy as np

from minidist.comm import ANY_SOURCE, world

ANSWER, JOB = 1, 2
comm = world()
message = np.zeros(1, int)
if comm.rank == 0:
    total, stopped, jobs = 0, 0, iter(range(20))
    while stopped < comm.size - 1:
        worker = comm.recv(message, ANY_SOURCE, ANSWER)
        total += message[0]
        job = next(jobs, -1)
        stopped += job < 0
        comm.send(np.array([job]), worker, JOB)
    print(total)
else:
    comm.send(message, 0, ANSWER)
    while True:
        comm.recv(message, 0, JOB)
        if message[0] < 0:
            break
        comm.send(message**2, 0, ANSWER)
