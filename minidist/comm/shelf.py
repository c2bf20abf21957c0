"""Pieces on a shelf: a rank fetches what others hold whenever it needs it, and they need not come to meet it.

    rank 0   computes | fetch(7) | computes ...          asks each other rank for its part of number 7
    rank 1   computes ............ | waits for a message     meanwhile its shelf answers

In a collective all ranks must take part, in the same order. Here only one wants something: how often, and in which
order, may differ from rank to rank (one has fewer microbatches, another none). Each rank keeps one small generator
for each other rank on its progress list, which answers whenever this rank waits for anything or ticks.

`close()` is the only meeting: nobody gets past it before all have said that they will fetch nothing more. So whoever
has closed its shelf may change what was on it, and open it again.

Cost of a fetch with p ranks: p-1 questions of 8 bytes (counted as "control") and p-1 answers of a part.
Read next: `minidist/sync/zero_weights.py`, which keeps weights on shelves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidist.comm.core import Core
from minidist.comm.progress import Request, Steps

NOTHING_MORE = -1  # in place of a number


class Shelf:
    """This rank's parts, which the others of `comm` may fetch. A collective: every rank of it makes one.

    purpose: under which the answers are counted.
    """

    def __init__(self, comm: Core, purpose: str) -> None:
        self.comm, self.purpose = comm, purpose
        self._asking, self._answering = comm.next_channel("control"), comm.next_channel(purpose)
        self._others = [rank for rank in range(comm.size) if rank != comm.rank]
        self._answerers: list[Request] = []

    def open(self, parts: Sequence[np.ndarray]) -> None:
        """Answer from now on: number i stands for parts[i], which must not change before `close`."""
        for peer in self._others:
            answerer = Request(self.comm, "answer", self._answer(peer, parts), {"peer": peer})
            self._answerers.append(self.comm.progress.start(answerer))

    def _answer(self, peer: int, parts: Sequence[np.ndarray]) -> Steps:
        """Send one other rank what it asks for, until it wants nothing more."""
        number = np.empty(1, np.int64)
        while True:
            yield (self._asking.receive(number, peer),)
            if number[0] == NOTHING_MORE:
                return
            yield (self._answering.send(parts[number[0]], peer),)

    def fetch(self, number: int, parts: Sequence[np.ndarray]) -> Request:
        """Start to fill parts[r] with what rank r has under this number; this rank's own is left as it is."""
        question = np.array([number])

        def steps() -> Steps:
            answers = [self._answering.receive(parts[peer], peer) for peer in self._others]
            yield [*answers, *(self._asking.send(question, peer) for peer in self._others)]

        return self.comm._start("fetch", steps(), self.purpose, parts[self.comm.rank])

    def say_no_more(self) -> Request:
        """Tell the others that this rank fetches nothing more until the shelf is opened again."""

        def steps() -> Steps:
            yield [self._asking.send(np.array([NOTHING_MORE]), peer) for peer in self._others]

        return self.comm._start("say_no_more", steps(), "control", None)

    def close(self) -> None:
        """Wait until all others have said so, too."""
        for answerer in self._answerers:
            answerer.wait()
        self._answerers.clear()
