"""A short function that sums and prints, called on rank 0 only."""

# fault: left
# left: others
import numpy as np

from minidist.comm import world

comm = world()
mean = lambda x: comm.reduce(np.array([x])) / comm.size  # noqa: E731  # <- rank 0
loss = 0.5 + comm.rank
if comm.rank == 0:
    print(mean(loss))
