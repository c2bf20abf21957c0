"""Let rank 0 collect a number from everyone; they meet at a barrier first."""

# fault: missing rank
import numpy as np

from minidist.comm import world

comm = world()
x = np.array([comm.rank + 1.0])
if comm.rank == 0:
    for source in range(1, comm.size):
        comm.recv(x, source)  # <- rank 0
else:
    comm.barrier()  # <- others
    comm.send(x, 0)
