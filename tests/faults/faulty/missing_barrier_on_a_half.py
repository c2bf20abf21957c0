"""Let the lower half meet before rank 0 sends; a barrier is for all ranks of its communicator."""

# fault: missing rank
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
x = np.zeros(2)
if comm.rank < comm.size // 2:
    comm.barrier()  # <- lower
    for dest in range(comm.size // 2, comm.size):
        if comm.rank == 0:
            comm.send(x, dest)
else:
    comm.recv(x, source=0)  # <- upper
