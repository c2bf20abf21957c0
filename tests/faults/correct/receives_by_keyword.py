"""Receive by keyword, into an attribute, a view of a view, an item of a dictionary, a popped array that lives on."""

# prints: 6.0
import numpy as np

from minidist.comm import world


class State:
    def __init__(self):
        self.x = np.zeros((2, 3))

    @property
    def row(self):
        return self.x[1]


comm = world()
if comm.rank == 1:
    for _ in range(6):
        comm.send(np.ones(3), dest=0)
elif comm.rank == 0:
    state, held, free = State(), {"a": np.zeros(3)}, [np.zeros(3)]
    flat = np.zeros(12)
    comm.recv(out=state.row, source=1)
    comm.recv(out=state.x[0], source=1)
    comm.recv(flat.reshape(3, 4)[:, 2], source=1)
    comm.recv(*(held["a"], 1))
    out = free.pop()
    comm.recv(out, source=1)
    comm.recv(last := np.zeros(3), 1)
    print((state.x.sum() + flat.sum() + held["a"].sum() + out.sum() + last.sum()) / 3)
