"""Sum each layer's gradient; rank 1 goes through the layers backwards."""

# fault: mismatch
import numpy as np

from minidist.comm import world

comm = world()
layers = {"w1": np.ones((3, 2)), "b1": np.ones(2), "w2": np.ones((2, 1))}
names = list(layers)
for name in reversed(names) if comm.rank == 1 else names:
    layers[name] = comm.all_reduce(layers[name])  # <- rank 1, others
