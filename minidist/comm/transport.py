"""What a transport is: a way to send rows of bytes from rank to rank, and no more.

There are two, `threads.py` and `mpi.py`. Everything else, every collective and the barrier too, is written once above
these few methods, so the two behave alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from minidist.comm.communicator import Communicator
    from minidist.comm.progress import Progress, Request


class TransportRequest(Protocol):
    """One message on its way."""

    peer: int | None  # world rank of the other side; None for any
    source: int  # once received: the sender's rank in the communicator
    count: int  # once received: bytes
    sending: bool
    tag: int
    done: bool  # whether it was complete when last looked at

    def test(self) -> bool:
        """Say whether it is complete. Raises MessageMismatch if it is not of the expected size."""
        ...


class Endpoint(Protocol):
    """One rank's door to a transport, within one communicator. Ranks are the communicator's."""

    transport: str
    rank: int
    size: int
    members: tuple[int, ...]  # world ranks
    nodes: tuple[int, ...]  # of each rank: a number for the machine it is on
    largest_tag: int  # tags of the user's messages: 0 to this
    payload_tags: range
    collective_tags: range
    guard_tags: range
    looks: int  # at a number in shared memory before a rank begins to wait; 0: ranks meet by messages

    def isend(self, array: np.ndarray, dest: int, tag: int, synchronous: bool = False) -> TransportRequest:
        """Start to send the bytes of a C-ordered array, which must not change before it is complete.

        synchronous: it is complete only when its receive has been started.
        """
        ...

    def irecv(self, buffer: np.ndarray, source: int, tag: int, exact: bool) -> TransportRequest:
        """Start to fill a C-ordered array from `source` (-1: any); `exact`: with exactly its size in bytes."""
        ...

    def iall_reduce(self, array: np.ndarray, op: str) -> TransportRequest:
        """Start the transport's own all-reduce, in place."""
        ...

    def share(self, comm: Communicator, stretch: int) -> np.ndarray:
        """Give all ranks the same memory, zeros at first: uint8 (ranks, stretch). Raises NotShared on all of them.

        A collective of `comm`, which is this endpoint's.
        """
        ...

    def meet(
        self, numbers: list[np.ndarray], place: int, number: int, tag: int
    ) -> Sequence[TransportRequest]:
        """Say in shared memory that this rank has come to `number`; complete when all other ranks have.

        numbers: one row of int64 for each rank, in memory that all see; `place` is where the number stands.
        """
        ...

    def idle(self, progress: Progress, request: Request, since: float) -> None:
        """Let time pass while `request` cannot go on; nothing has moved since `since` (time.perf_counter)."""
        ...

    def split(self, number: int, color: int | None, members: Sequence[int]) -> Endpoint | None:
        """Give the door to the communicator of `members`, ranks of this one in their new order.

        `number` is the same on every rank and never comes twice; color None: this rank is in none.
        """
        ...

    def alone(self) -> Endpoint:
        """Give a door to nobody but this rank itself; concerns no other rank."""
        ...

    def free(self) -> None:
        """Give back what the transport keeps for this communicator; every rank has come to this."""
        ...

    def abort(self, code: int) -> None:
        """End every rank of the job."""
        ...
