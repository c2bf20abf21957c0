"""The loop of the simulator: strands that take steps, and a heap of who goes on when.

    heap of events:   (when, whose strand goes on)            a strand: a rank's program, or one of its collectives

        rank 0    program      compute | compute ........ | wait | update
                  all_reduce             send, receive  send, receive      goes on beside it

Take the earliest event, let its strand go on until it waits again, note when what it waits for will be there. So time
passes from event to event. A strand is a generator that yields what it waits for, as real operations do
(`comm/progress.py`). Read next: `simulate.py`, which says what strands do.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import count


@dataclass(slots=True, eq=False)
class Pending:
    """Something that is complete at a time which may not be known yet."""

    at: float | None = None
    waiter: Strand | None = None
    what: str = ""


Steps = Generator[Iterable[Pending], None, None]


class Strand:
    """A row of steps that one rank takes: `clock` is where it has come to."""

    def __init__(self, rank: int, at: float, own: bool) -> None:
        self.rank, self.clock, self.own = rank, at, own  # own: the rank's program, not something beside it
        self.steps: Steps
        self.pending: list[Pending] = []
        self.unknown = 0  # how many of them nobody knows the time of yet
        self.done = Pending()


class Events:
    """Let time pass on so many ranks.

    ticks: a rank moves what goes on beside its program only between two computations, and while it waits.
    """

    def __init__(self, ranks: int, ticks: bool) -> None:
        self.ticks = ticks
        self.events: list[tuple[float, bool, int, Strand]] = []
        self.number = count()
        self.strands: list[Strand] = []
        self.busy = [0.0] * ranks  # until when each rank computes

    def start(self, rank: int, at: float, steps: Callable[[Strand], Steps], own: bool = False) -> Strand:
        """Begin a strand: it goes as far as it can at once."""
        strand = Strand(rank, at, own)
        strand.steps = steps(strand)
        self.strands.append(strand)
        self.go_on(strand)
        return strand

    def push(self, strand: Strand, at: float) -> None:
        """Let a strand go on at a time. Of several on one rank its program comes last: ticks come first."""
        heapq.heappush(self.events, (at, strand.own, next(self.number), strand))

    def run(self) -> None:
        """Take one event after another. ValueError if some strand never comes to its end."""
        while self.events:
            now, _, _, strand = heapq.heappop(self.events)
            if self.ticks and self.busy[strand.rank] > now:
                self.push(strand, self.busy[strand.rank])
                continue
            strand.clock = now
            self.go_on(strand)
        stuck = [strand for strand in self.strands if strand.done.at is None]
        if stuck:
            waits = "; ".join(
                f"rank {strand.rank} waits for {', '.join(p.what for p in strand.pending if p.at is None)}"
                for strand in stuck[:4]
            )
            raise ValueError(f"these programs cannot come to their end: {waits}")

    def go_on(self, strand: Strand) -> None:
        """Take a strand's steps until it has to wait."""
        while True:
            pending = next(strand.steps, None)
            if pending is None:
                self.complete(strand.done, strand.clock)
                return
            strand.pending = list(pending)
            unknown = [p for p in strand.pending if p.at is None]
            for p in unknown:
                p.waiter = strand
            strand.unknown = len(unknown)
            if unknown:
                return
            at = max((p.at or 0.0 for p in strand.pending), default=strand.clock)
            if at > strand.clock:
                self.push(strand, at)
                return

    def complete(self, pending: Pending, at: float) -> None:
        """Say when something is complete, and let who waits for it go on then."""
        pending.at = at
        strand = pending.waiter
        if strand is not None:
            strand.unknown -= 1
            if not strand.unknown:
                self.push(strand, max(strand.clock, *(p.at or 0.0 for p in strand.pending)))
