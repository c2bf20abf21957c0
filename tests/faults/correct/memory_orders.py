"""Sum arrays that lie in memory in different orders: values count, not layouts."""

# prints: sum(range(12)) * n
import numpy as np

from minidist.comm import world

comm = world()
x = np.arange(12).reshape(3, 4)
layouts = [x, np.asfortranarray(x), x[::-1][::-1], np.repeat(x, 2, axis=1)[:, ::2]]
total = comm.all_reduce(layouts[comm.rank % 4])
assert (total == x * comm.size).all()
if comm.rank == 0:
    print(total.sum())
