"""The guard itself: what it does when a rank begins an operation, is about to sleep, and has ended one.

Read `fingerprints.py` (before), `graph.py` and `verdict.py` (while a rank waits) next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minidist.comm import guard
from minidist.comm.events import Event, Listener
from minidist.comm.guard.requests import Requests

if TYPE_CHECKING:
    from minidist.comm.communicator import Communicator
    from minidist.comm.transport import TransportRequest


class Guard(Listener):
    """Watch one rank: `comm` and all communicators that will be split from it."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        comm.listeners += [self, Requests()]
        comm.synchronous = guard.is_on(guard.SEND)

    def before(self, event: Event) -> list[TransportRequest] | None:
        """Hold a collective back until every rank has come with the same."""
        return None

    def waiting(self, event: Event) -> None:
        """Look around: can this rank ever go on?"""

    def after(self, event: Event) -> None:
        """Note that an operation is complete."""

    def waited(self, event: Event) -> None:
        """Note that the program has asked for the result."""
