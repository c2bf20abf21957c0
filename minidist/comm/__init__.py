"""comm: talking to other ranks. Pass a communicator as an argument; `world()` is for your own programs.

    from minidist.comm import world
    comm = world()
    total = comm.all_reduce(x, op="sum")

Read `communicator.py`, `other_collectives.py` and `point_to_point.py` first (what can be asked), then `all_reduce.py`
and `collectives.py` (how it is done with send and receive alone), `shared_memory.py`, `staged.py` and `shelf.py` (how
without either), `progress.py` (how it goes on in the background), `threads.py` and `mpi.py` (how bytes travel),
`mesh.py` (the ranks as a grid), `two_level.py` (the ranks of several machines), and `on_tape.py` (collectives that have
gradients).
"""

from minidist.comm.communicator import Communicator
from minidist.comm.core import ANY_SOURCE, PURPOSES
from minidist.comm.errors import (
    CollectiveMismatch,
    CommError,
    DeadlockError,
    MessageMismatch,
    NotShared,
    RankStopped,
    RequestFault,
)
from minidist.comm.mesh import Mesh
from minidist.comm.progress import Request
from minidist.comm.world import world

__all__ = [
    "ANY_SOURCE",
    "PURPOSES",
    "CollectiveMismatch",
    "CommError",
    "Communicator",
    "DeadlockError",
    "Mesh",
    "MessageMismatch",
    "NotShared",
    "RankStopped",
    "Request",
    "RequestFault",
    "world",
]
