"""Fingerprints in memory that all see: who comes to a collective writes there what it calls, and reads the others.

    rank 0   | number of the collective, digest | ... one place for each of the last collectives | texts ... |
    rank 1   | number of the collective, digest | ...      all four alike: go on, nothing was sent or waited for

It is the gate of `fingerprints.py` without its p (p-1) messages, which cost more than a small collective. A place is
one 64-bit number, written last: who sees it knows that the rank has come, and by the digest whether with the same. Only
if not, the text is read. A rank that is PLACES collectives ahead has written over what it said: then it counts as alike
here, and it is that rank itself which sees the difference.

It is for the communicator that the guard was made for. Those split from it use messages: to make memory they would have
to wait for each other. Read `listener.py` next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from minidist import _kernels as kernels
from minidist.comm.guard.fingerprints import LONGEST, Agreement

if TYPE_CHECKING:
    from minidist.comm.core import Core
    from minidist.comm.transport import TransportRequest

PLACES = 64
NUMBERS = 8 * PLACES  # bytes
TEXT = LONGEST + 64  # bytes of a place; a text ends with a zero
STRETCH = -(-(NUMBERS + PLACES * TEXT) // 4096) * 4096  # bytes for each rank: whole pages


class Came:
    """The moment when another rank has come to a collective."""

    source, count, sending = -1, 0, False

    def __init__(self, slots: Slots, rank: int, peer: int, tag: int, number: int, mine: np.ndarray) -> None:
        self.slots, self.rank, self.number, self.mine = slots, rank, number, mine
        self.peer: int | None = peer
        self.tag = tag
        self.done = False

    def test(self) -> bool:
        """Say whether it has."""
        if not self.done:
            first = self.number >> 32 << 32  # of the numbers that this collective can have
            self.done = kernels.has_reached(self.slots.numbers[self.rank], self.place, first)
        return self.done

    @property
    def place(self) -> int:
        """Give where its number stands."""
        return (self.number >> 32) % PLACES

    def content(self) -> np.ndarray | None:
        """Give the fingerprint with which it has come; None: it has not."""
        if not self.done:
            return None
        theirs = int(self.slots.numbers[self.rank][self.place])
        alike = theirs == self.number or theirs >> 32 != self.number >> 32
        return self.mine if alike else self.slots.text(self.rank, self.place)


class Slots:
    """The places of all ranks of one communicator."""

    def __init__(self, memory: np.ndarray, rank: int) -> None:
        self.rank = rank
        self.numbers = list(memory[:, :NUMBERS].view(np.int64))  # of each rank: (PLACES,)
        self.texts = memory[:, NUMBERS : NUMBERS + PLACES * TEXT].reshape(len(memory), PLACES, TEXT)
        self.held: list[np.ndarray | None] = [None] * PLACES  # which texts stand in our own places

    def text(self, rank: int, place: int) -> np.ndarray:
        """Read a text, which ends with a zero."""
        text = self.texts[rank, place].copy()
        return text[: int(np.argmin(text))]

    def gate(
        self, comm: Core, sequence: int, content: np.ndarray, digest: int
    ) -> list[TransportRequest] | None:
        """Say what this rank calls; give the requests of the gate, None if all others have come with the same."""
        number = (sequence + 1) << 32 | digest  # 0 is nobody's
        place = (sequence + 1) % PLACES
        if self.held[place] is not content:  # a training says the same again and again
            self.texts[self.rank, place, : len(content)] = content
            self.texts[self.rank, place, len(content)] = 0
            self.held[place] = content
        kernels.store_release(self.numbers[self.rank], place, number)
        if all(row[place] == number for row in self.numbers):
            return None
        tag = comm.endpoint.guard_tags[sequence % len(comm.endpoint.guard_tags)]
        came = {
            rank: Came(self, rank, member, tag, number, content)
            for rank, member in enumerate(comm.members)
            if rank != self.rank
        }
        heard = {rank: one.content for rank, one in came.items()}
        return [*came.values(), Agreement(comm, sequence, content, heard)]
