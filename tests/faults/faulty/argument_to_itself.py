"""Hand a job to every rank, the master too."""

# fault: argument
import numpy as np

from minidist.comm import world

comm = world()
job = np.zeros(1)
if comm.rank == 0:
    for worker in range(comm.size):
        comm.send(job, worker)  # <- rank 0
else:
    comm.recv(job, 0)
