"""Workers that work until they are told to stop, which the master forgets."""

# fault: left
# left: 0
import numpy as np

from minidist.comm import world

comm = world()
job = np.empty(1)
if comm.rank == 0:
    for worker in range(1, comm.size):
        for number in (3.0, 4.0):
            comm.send(np.array([number]), worker)
else:
    while True:
        comm.recv(job, 0)  # <- others
        if job[0] < 0:
            break
