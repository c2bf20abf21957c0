"""Where a rank says what it does, and learns what the others do: the verdict does not know by which way.

    ranks of one machine    memory that all of them see      board.py      nothing is sent, found in some 0.04 s
    several machines        letters, once a rank has waited  letters.py    some messages, found in some 0.3 s

Read `listener.py` next, which asks; then either of the two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from minidist.comm import line
from minidist.comm.errors import CommError, NotShared
from minidist.comm.guard import slots
from minidist.comm.guard.board import STRETCH, Board
from minidist.comm.guard.counts import Counts
from minidist.comm.guard.graph import Operation, Sent, Standing
from minidist.comm.guard.letters import Letters
from minidist.comm.guard.slots import Slots

if TYPE_CHECKING:
    from minidist.comm.communicator import Communicator


class Facts(Protocol):
    """What one rank says of itself and knows of others. Ranks are the world's."""

    def begin(self) -> None:
        """Say that this rank runs, and forget who has left: all ranks begin (again) together."""
        ...

    def say(self, state: str, operations: Sequence[Operation] = (), sent: Sequence[Sent] = ()) -> None:
        """Say what this rank does from now on: it "runs", "waits" in the first of these operations, or has "left".

        sent: what a rank that has left had sent before.
        """
        ...

    def say_more(self, sent: Sequence[Sent], unreceived: Sequence[Sent]) -> None:
        """Say what this rank, which goes on waiting, has sent, and what was sent to it and never taken."""
        ...

    def look(self, ranks: Sequence[int]) -> None:
        """Hear that this rank still waits and can be reached; comes before each of its naps."""
        ...

    def standings(self, ranks: Sequence[int]) -> dict[int, Standing]:
        """Give what these ranks do, as far as this one knows."""
        ...

    def settled(self, found: set[int], ranks: Sequence[int]) -> bool:
        """Say whether ranks that are stuck by their standings are so for good: nothing for them is under way."""
        ...

    def decide(self, error: CommError) -> None:
        """Tell all who are stuck the report, which they are to raise."""
        ...

    def decided(self) -> CommError | None:
        """Give the report that another rank has made and that this one is to raise."""
        ...


def of(comm: Communicator, me: int) -> tuple[Facts | None, Slots | None]:
    """Give what the ranks of `comm`, which are processes, learn of each other by; a collective. me: world rank.

    Where they see the same memory, there is also room in it for fingerprints.
    """
    quiet = comm.quiet()
    # So that the program's own first collective has number 0.
    quiet._collectives = len(comm.endpoint.collective_tags) // 2
    if len(set(comm.nodes)) == 1:  # pretend machines are told apart as well as real ones
        with contextlib.suppress(NotShared):
            memory = comm.endpoint.share(quiet, STRETCH + slots.STRETCH)
            return Board(memory[:, :STRETCH], comm.rank), Slots(memory[:, STRETCH:], comm.rank)
    letters = Letters(me, Counts()) if line.is_open() else None
    quiet.barrier()  # from now on letters are read everywhere
    return letters, None
