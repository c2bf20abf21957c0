"""Within rows of two, both receive first; the other rows get it right."""

# fault: cycle
# ranks: 4 8
import numpy as np

from minidist.comm import world

comm = world()
row = comm.split(comm.rank // 2)
theirs, mine = np.empty(2), np.ones(2)
if comm.rank < 2:
    row.recv(theirs, 1 - row.rank)  # <- ranks 0 1
    row.send(mine, 1 - row.rank)
else:
    row.sendrecv(mine, 1 - row.rank, theirs, 1 - row.rank)
comm.barrier()  # <- (others)
