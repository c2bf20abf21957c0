"""Sum losses: a number on rank 0, an array of one element elsewhere."""

# fault: mismatch
# prints: float(n)
import numpy as np

from minidist.comm import world

comm = world()
loss = np.array(1.0) if comm.rank == 0 else np.array([1.0])
total = comm.all_reduce(loss)  # <- rank 0, others
if comm.rank == 0:
    print(float(total))
