"""The guard: it finds calls that do not fit together and ranks that wait for ever, and says where they stand.

    MINIDIST_GUARD=1 mpiexec -n 4 python program.py        any program
    mpiexec -n 4 python -m minidist.train --guard          a training

In exercises, tutorials and tests it is on from the start. It is a listener (`comm/events.py`): comm does not know it.

    a collective differs between ranks      refused on every rank before any data moves        fingerprints.py
    no rank can go on                       told at once, without a time limit                 graph.py, verdict.py
    a request is not used as it must be     told with the line that started it                 requests.py
    a rank lets the others wait             a warning that names it                            listener.py
    a rank dies                             its last operations, guard or no guard             recorder.py

Whatever is found is told once, in words for the reader of the program (`report.py`). Read `listener.py` next.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minidist.comm.communicator import Communicator
    from minidist.comm.guard.facts import Facts
    from minidist.comm.guard.listener import Guard

MISMATCH, DEADLOCK, LEFT, SEND, REQUESTS, STRAGGLER = (
    "mismatch",
    "deadlock",
    "left",
    "send",
    "requests",
    "straggler",
)


def is_on(detector: str) -> bool:
    """Say whether a detector is at work: tests turn single ones off, to see that they are what finds a fault."""
    return detector not in os.environ.get("MINIDIST_GUARD_WITHOUT", "").split(",")


def watch(comm: Communicator, board: Facts | None = None) -> Guard:
    """Watch all that `comm`, and what will be split from it, does. A collective of `comm`; once is enough.

    board: of a guard whose ranks include those of `comm`, to be used again; then it is no collective.
    """
    from minidist.comm.guard.listener import Guard

    for listener in comm.listeners:
        if isinstance(listener, Guard):
            return listener
    return Guard(comm, board)
