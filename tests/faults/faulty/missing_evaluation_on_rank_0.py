"""Train three steps; rank 0 alone evaluates in between, with an all-reduce in the helper."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()


def evaluate(weights):
    return comm.all_reduce(np.array([weights.sum()]))  # <- rank 0


weights = np.ones(5)
for step in range(3):
    weights -= 0.1 * comm.all_reduce(weights) / comm.size  # <- others
    if comm.rank == 0 and step == 1:
        print(evaluate(weights))
