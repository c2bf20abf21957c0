"""Collect results at rank 0: the others send theirs, as one does without gather."""

# fault: missing rank
import numpy as np

from minidist.comm import world

comm = world()
mine = np.arange(3.0) + comm.rank
if comm.rank == 0:
    table = comm.gather(mine)  # <- rank 0
else:
    comm.send(mine, dest=0)  # <- others
