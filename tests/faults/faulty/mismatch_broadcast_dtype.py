"""Receive float64 weights into float32 memory."""

# fault: mismatch
# prints: 0.5
import numpy as np

from minidist.comm import world

comm = world()
w = np.full(4, 0.5) if comm.rank == 0 else np.empty(4, np.float32)
comm.broadcast(w)  # <- rank 0, others
if comm.rank == comm.size - 1:
    print(w[0])
