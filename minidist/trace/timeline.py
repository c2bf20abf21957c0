"""What all ranks did, as plain data: the same for a real run and for a simulated one, so one picture draws both.

    rank 0   |forward|forward|  idle  |backward|backward|update|      spans: what a rank did, from when to when
    rank 1           |forward|backward|forward |backward|update|
                      ^ a message from rank 0                          flows: who sent what, and when it was there

All times are seconds on one clock, which may begin anywhere. Nothing here measures, draws, or knows MPI.
Read next: `minidist/plan/simulate.py`, which makes timelines without running anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

COMPUTES = ("forward", "backward", "weights", "update", "compute")
KINDS = (*COMPUTES, "communication", "idle")  # what a rank can be doing: one of these at a time
FLIGHT = "flight"  # an operation that goes on beside what its rank does: drawn on tracks of its own


@dataclass(frozen=True, slots=True)
class Span:
    """Something that a rank did: `kind` is one of KINDS ("weights": the weights' part of a backward), or FLIGHT.

    Spans may lie in one another: a layer in a forward, a wait in a layer. The innermost one says what the rank does.
    """

    rank: int
    kind: str
    name: str  # the operation or the layer: "all_reduce", "blocks.0"
    start: float
    stop: float
    step: int | None = None
    microbatch: int | None = None
    chunk: int | None = None
    layer: str | None = None
    bytes: int | None = None
    peer: int | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """A message from rank `source` to rank `dest`."""

    source: int
    dest: int
    sent: float
    received: float
    bytes: int
    name: str = ""


@dataclass
class Timeline:
    """What `ranks` ranks did.

    sent: int64 of shape (ranks, ranks), the payload bytes from each rank (row) to each other one.
    memory: for each rank, (time, bytes) whenever what it holds changed.
    facts: whatever a picture's title should say (command, mesh, schedule, measured or simulated, losses ...).
    """

    ranks: int
    spans: list[Span] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    sent: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    memory: list[list[tuple[float, int]]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sent.size == 0:
            self.sent = np.zeros((self.ranks, self.ranks), np.int64)
        self.memory = self.memory or [[] for _ in range(self.ranks)]

    @property
    def start(self) -> float:
        """When the first span began; 0 if there is none."""
        return min((span.start for span in self.spans), default=0.0)

    @property
    def stop(self) -> float:
        """When the last span ended."""
        return max((span.stop for span in self.spans), default=0.0)

    def of_ranks(self) -> list[list[Span]]:
        """Give each rank's spans, but for what is in flight beside them."""
        found: list[list[Span]] = [[] for _ in range(self.ranks)]
        for span in self.spans:
            if span.kind != FLIGHT:
                found[span.rank].append(span)
        return found

    def seconds(self) -> dict[str, np.ndarray]:
        """Give the seconds of each kind that occurs, as float64 of shape (ranks,): at each moment the innermost counts.

        What is in flight is left out, so the kinds add up to the time that is in any span.
        """
        found: dict[str, np.ndarray] = {}
        for rank, spans in enumerate(self.of_ranks()):
            for span, start, stop in innermost(spans):
                found.setdefault(span.kind, np.zeros(self.ranks))[rank] += stop - start
        return {kind: found[kind] for kind in KINDS if kind in found}

    def bubble(self) -> np.ndarray:
        """Give the share of time, (ranks,), in which each rank computes nothing.

        From the first computation of any rank to the last one's end.
        """
        computing = [span for span in self.spans if span.kind in COMPUTES]
        if not computing:
            return np.zeros(self.ranks)
        whole = max(span.stop for span in computing) - min(span.start for span in computing)
        busy = sum((s for kind, s in self.seconds().items() if kind in COMPUTES), np.zeros(self.ranks))
        return 1 - busy / whole if whole > 0 else np.zeros(self.ranks)

    def sent_list(self) -> list[list[int]]:
        """Give what of `sent` is not zero, as [source, dest, bytes]."""
        sources, dests = np.nonzero(self.sent)
        return np.stack([sources, dests, self.sent[sources, dests]], axis=1).tolist()

    def to_dict(self) -> dict[str, Any]:
        """Give plain data that JSON can write."""
        return {
            "ranks": self.ranks,
            "spans": [{k: v for k, v in asdict(span).items() if v is not None} for span in self.spans],
            "flows": [asdict(flow) for flow in self.flows],
            "sent": self.sent_list(),
            "memory": [[list(point) for point in points] for points in self.memory],
            "facts": self.facts,
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Timeline:
        """Take what `to_dict` gave, also after a way through JSON."""
        timeline = cls(
            plain["ranks"],
            [Span(**span) for span in plain["spans"]],
            [Flow(**flow) for flow in plain["flows"]],
            memory=[[(time, nbytes) for time, nbytes in points] for points in plain["memory"]],
            facts=plain["facts"],
        )
        for source, dest, nbytes in plain["sent"]:
            timeline.sent[source, dest] = nbytes
        return timeline


def innermost(spans: Iterable[Span]) -> Iterator[tuple[Span, float, float]]:
    """Cut one rank's time into pieces, each (span, start, stop): of spans that lie in one another the inner one."""
    around: list[Span] = []  # those that have begun, the innermost last
    now = -np.inf
    for span in sorted(spans, key=lambda span: (span.start, -span.stop)):
        while around and around[-1].stop <= span.start:
            over = around.pop()
            if over.stop > now:
                yield over, max(now, over.start), over.stop
                now = over.stop
        if around and span.start > now:
            yield around[-1], now, span.start
        now = max(now, span.start)
        around.append(span)
    while around:
        over = around.pop()
        if over.stop > now:
            yield over, now, over.stop
            now = over.stop
