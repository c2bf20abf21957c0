"""Wait for all requests after each step, and never empty the list."""

# fault: waited twice
import numpy as np

from minidist.comm import world

comm = world()
requests = []
for _ in range(3):
    requests.append(comm.iall_reduce(np.ones(10)))  # <- others
    for request in requests:
        request.wait()  # <- others
