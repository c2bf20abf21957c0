"""Share the first rank's seed; everyone believes to be the root."""

# fault: mismatch
# prints: 100
import numpy as np

from minidist.comm import world

comm = world()
seed = np.array([100 + comm.rank])
seed = comm.broadcast(seed, root=comm.rank)  # <- rank 0, others
if comm.rank == comm.size - 1:
    print(seed[0])
