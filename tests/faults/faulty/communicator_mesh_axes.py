"""Name the mesh's axes in another order on rank 0, then sum along "data"."""

# fault: communicator
# ranks: 4
import numpy as np

from minidist.comm import Mesh, world

comm = world()
axes = {"pipe": 2, "data": 2} if comm.rank == 0 else {"data": 2, "pipe": 2}
mesh = Mesh(comm, **axes)
gradient = mesh.comm("data").all_reduce(np.ones(5))  # <- ranks 0 2
comm.barrier()  # <- (others)
