"""Sum outputs of a batch of 4 n + 1 rows, cut into 4 or 5 per rank."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
batch = np.array_split(np.ones((4 * comm.size + 1, 3)), comm.size)[comm.rank]
outputs = comm.all_reduce(batch * 2)  # <- rank 0, others
