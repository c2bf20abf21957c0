"""Send the edge of a grid in the background, and smooth the whole grid meanwhile."""

# fault: changed in flight
import numpy as np

from minidist.comm import world

comm = world()
grid = np.arange(5000.0).reshape(50, 100)
edge = np.empty(100)
if comm.rank == comm.size - 1:
    request = comm.isend(grid[-1], dest=0)  # <- last
    grid[1:] = (grid[1:] + grid[:-1]) / 2
    request.wait()  # <- last
elif comm.rank == 0:
    comm.recv(edge, source=comm.size - 1)
