"""Share the weights and sum the losses; rank 0 does so in the other order."""

# fault: mismatch
# prints: 2.0 * n
import numpy as np

from minidist.comm import world

comm = world()
weights, loss = np.full(2, float(comm.rank)), np.full(2, 2.0)
if comm.rank == 0:
    total = comm.all_reduce(loss)  # <- rank 0
    weights = comm.broadcast(weights)
    print(total[0])
else:
    weights = comm.broadcast(weights)  # <- others
    total = comm.all_reduce(loss)
