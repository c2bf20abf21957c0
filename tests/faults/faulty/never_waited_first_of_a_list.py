"""Post a receive from each worker and wait for all but the first."""

# fault: never waited
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank == 0:
    results = np.zeros(comm.size)
    requests = [comm.irecv(results[k : k + 1], k) for k in range(1, comm.size)]  # <- rank 0
    for request in requests[1:]:
        request.wait()
else:
    comm.send(np.array([1.0]), 0)
