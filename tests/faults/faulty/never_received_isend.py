"""Tell rank 1 something that it never asks for."""

# fault: never received
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank == 0:
    comm.isend(np.ones(8), dest=1, tag=5).wait()  # <- rank 0
comm.barrier()
