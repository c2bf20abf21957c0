"""Send a large array to a rank that receives it after long work."""

# prints: 1000000.0
import time

import numpy as np

from minidist.comm import world

comm = world()
x = np.ones(10**6)
if comm.rank == 1:
    comm.send(x, 0)
elif comm.rank == 0:
    until = time.monotonic() + 0.7
    while time.monotonic() < until:
        x = np.sort(x[::-1])
    comm.recv(x, 1)
    print(x.sum())
