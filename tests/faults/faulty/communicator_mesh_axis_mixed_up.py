"""Sum gradients over "data"; the first stage's ranks sum over "pipe"."""

# fault: communicator
# ranks: 4 8
import numpy as np

from minidist.comm import Mesh, world

comm = world()
mesh = Mesh(comm, data=comm.size // 2, pipe=2)
axis = "pipe" if mesh.coordinates["pipe"] == 0 else "data"
gradient = mesh.comm(axis).all_reduce(np.ones(5))  # <- even, (odd)
comm.barrier()  # <- (odd)
