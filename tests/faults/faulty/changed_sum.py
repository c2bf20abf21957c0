"""Sum gradients in the background, and clear them for the next step too early."""

# fault: changed in flight
import numpy as np

from minidist.comm import world

comm = world()
gradient = np.ones(1000)
request = comm.iall_reduce(gradient)  # <- others
gradient[:] = 0.0
total = request.wait()  # <- others
