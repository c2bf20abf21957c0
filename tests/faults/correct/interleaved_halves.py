"""Send the even numbers of an array while the odd ones are received and the rest is worked on."""

# prints: 1.0
import numpy as np

from minidist.comm import world

comm = world()
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
x = np.zeros((4, 3000))
x[0, ::2] = 1.0
requests = [comm.irecv(x[0, 1::2], left), comm.isend(x[0, ::2], right)]
x[1:] += 1.0
for request in requests:
    request.wait()
if comm.rank == 0:
    print(x[0].mean())
