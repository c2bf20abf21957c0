"""Poll for a sum, then take its result with wait."""

# prints: float(n)
import numpy as np

from minidist.comm import world

comm = world()
request = comm.iall_reduce(np.ones(5))
while not request.test():
    pass
total = request.wait()
if comm.rank == 0:
    print(total[0])
