"""Send within the pair, receive in the world."""

# fault: communicator | unmatched receive | cycle
import numpy as np

from minidist.comm import world

comm = world()
pair = comm.split(comm.rank // 2, name="pair")
x = np.ones(3)
if comm.rank == 0:
    pair.send(x, 1)  # <- rank 0
elif comm.rank == 1:
    comm.recv(x, 0)  # <- rank 1
