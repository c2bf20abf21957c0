"""Send a matrix in the background and change it through its transpose, in a function."""

# fault: changed in flight
import numpy as np

from minidist.comm import world

comm = world()


def normalise(columns):
    for column in columns:
        column /= column.sum()


x = np.arange(1.0, 13.0).reshape(3, 4)
if comm.rank == 1:
    request = comm.isend(x, dest=0)  # <- rank 1
    normalise(x.T)
    while not request.test():
        pass  # <- rank 1
elif comm.rank == 0:
    comm.recv(x, source=1)
