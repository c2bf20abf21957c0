"""Divide by the number of rows, of which the last rank has none."""

# fault: died
import numpy as np

from minidist.comm import world

comm = world()
rows = np.array_split(np.arange(comm.size - 1), comm.size)[comm.rank]
share = sum(rows) // len(rows)  # <- last
total = comm.all_reduce(np.array([share]))
