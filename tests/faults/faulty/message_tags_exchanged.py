"""Send weights under tag 1 and the bias under tag 2; receive them with the tags exchanged."""

# fault: message
import numpy as np

from minidist.comm import world

comm = world()
weights, bias = np.zeros((4, 3)), np.zeros(3)
if comm.rank == 0:
    requests = [comm.isend(weights, 1, tag=1), comm.isend(bias, 1, tag=2)]  # <- rank 0
    for request in requests:
        request.wait()
elif comm.rank == 1:
    comm.recv(weights, 0, tag=2)  # <- rank 1
    comm.recv(bias, 0, tag=1)
