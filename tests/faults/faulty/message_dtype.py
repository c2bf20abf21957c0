"""Send float32, receive into NumPy's default float64."""

# fault: message
# prints: 1.5
import numpy as np

from minidist.comm import world

comm = world()
if comm.rank == 1:
    comm.send(np.full(4, 1.5, np.float32), dest=0)  # <- rank 1
elif comm.rank == 0:
    x = np.zeros(4)
    comm.recv(x, source=1)  # <- rank 0
    print(x[0])
