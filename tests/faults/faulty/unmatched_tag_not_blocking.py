"""Send under the number of the step, receive under that of the next one; then meet."""

# fault: unmatched receive
import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(4)
if comm.rank == 0:
    request = comm.isend(x, dest=1, tag=3)  # <- rank 0
    request.wait()
elif comm.rank == 1:
    comm.recv(x, source=0, tag=4)  # <- rank 1
comm.barrier()  # <- rank 0, (others)
