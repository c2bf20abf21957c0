"""Sum along rows, then along columns: the sum of all."""

# prints: float(sum(range(n)))
# ranks: 2 4 8
import numpy as np

from minidist.comm import Mesh, world

comm = world()
mesh = Mesh(comm, row=comm.size // 2, column=2)
x = np.array([float(comm.rank)])
x = mesh.comm("column").all_reduce(mesh.comm("row").all_reduce(x))
if comm.rank == 0:
    print(x[0])
