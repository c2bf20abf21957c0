"""Pass rows to the right; the last rank has one row less."""

# fault: message
import numpy as np

from minidist.comm import world

comm = world()
rows = np.array_split(np.ones((3 * comm.size - 1, 2)), comm.size)[comm.rank]
theirs = np.empty_like(rows)
last = comm.size - 1
if comm.rank == last - 1:
    comm.send(rows, last)  # <- rank n - 2
elif comm.rank == last:
    comm.recv(theirs, last - 1)  # <- last
