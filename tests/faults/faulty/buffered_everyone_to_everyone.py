"""Send to all others, then receive from all others."""

# fault: buffered send
import numpy as np

from minidist.comm import world

comm = world()
others = [rank for rank in range(comm.size) if rank != comm.rank]
for rank in others:
    comm.send(np.array([comm.rank]), rank)  # <- ranks 0 1, (others)
got = np.empty(1, int)
for rank in others:
    comm.recv(got, rank)
