"""A dictionary gives each rank its group, but none to the last: split returns nothing there."""

# fault: died
import numpy as np

from minidist.comm import world

comm = world()
colors = {rank: rank // 2 for rank in range(comm.size - 1)}
group = comm.split(colors.get(comm.rank), name="pair")
total = group.all_reduce(np.ones(2))  # <- last
comm.barrier()
