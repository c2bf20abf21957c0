"""Ask for the mean, which is not a reduction of ours."""

# fault: argument
import numpy as np

from minidist.comm import world

comm = world()
mean = comm.all_reduce(np.ones(3), op="mean")  # <- others
