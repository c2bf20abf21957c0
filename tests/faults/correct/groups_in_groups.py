"""Halves, pairs in the halves, and the first of each pair; they are used at different speeds and freed."""

# prints: float(n)
import time

import numpy as np

from minidist.comm import world

comm = world()
half = comm.split(comm.rank * 2 // comm.size, name="half")
pair = half.split(half.rank // 2, name="pair")
first = half.split(0 if pair.rank == 0 else None, name="first")
x = np.ones(1)
for _ in range(1 + comm.rank * 2 // comm.size):  # the upper half goes once more round
    y = pair.reduce(x)
    if first is not None:
        time.sleep(0.01)
        y = first.all_reduce(y)
    y = pair.broadcast(y if pair.rank == 0 else None)
if first is not None:
    first.free()
pair.free()
leaders = comm.split(0 if half.rank == 0 else None)
if leaders is not None:
    total = leaders.all_reduce(y)
if comm.rank == 0:
    print(total[0])
