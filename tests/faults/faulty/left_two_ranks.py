"""Stop where the loss has converged: on rank 1 by a return, on rank 2 by sys.exit(0)."""

# fault: left
# left: 1, 2
# ranks: 4 8
import sys

import numpy as np

from minidist.comm import world


def train(comm):
    for step in range(5):
        loss = np.array([1.0 / (step + 1)])
        if comm.rank == 1 and step == 2:
            return
        if comm.rank == 2 and step == 2:
            sys.exit(0)
        comm.all_reduce(loss)  # <- others


train(world())
