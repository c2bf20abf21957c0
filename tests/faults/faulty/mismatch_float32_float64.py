"""Sum gradients; a Python-side constant has made rank 0's float64."""

# fault: mismatch
# prints: float(n)
import numpy as np

from minidist.comm import world

comm = world()
gradient = np.ones(4, np.float32)
if comm.rank == 0:
    gradient = gradient * np.float64(1.0)
total = comm.all_reduce(gradient)  # <- rank 0, others
if comm.rank == 0:
    print(float(total[0]))
