"""Poll for an answer that comes after the barrier, which the others have reached."""

# fault: missing rank
import numpy as np

from minidist.comm import world

comm = world()
x = np.zeros(2)
if comm.rank == 0:
    request = comm.irecv(x, comm.size - 1)  # <- rank 0
    while not request.test():
        pass  # <- rank 0
comm.barrier()  # <- last, (others)
if comm.rank == comm.size - 1:
    comm.send(x, 0)
comm.barrier()
