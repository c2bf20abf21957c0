"""Send three messages in the background, keep the last request only."""

# fault: never waited
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(3)
if comm.rank == 1:
    for _ in range(3):
        request = comm.isend(x, dest=0)  # <- rank 1
    request.wait()
elif comm.rank == 0:
    for _ in range(3):
        comm.recv(x, source=1)
comm.barrier()
