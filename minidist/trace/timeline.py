"""What all ranks did, as plain data: the same for a real run and for a simulated one, so one picture draws both.

    rank 0   |forward|forward|  idle  |backward|backward|update|      spans: what a rank did, from when to when
    rank 1           |forward|backward|forward |backward|update|
                      ^ a message from rank 0                          flows: who sent what, and when it was there

All times are seconds on one clock, which may begin anywhere. Nothing here measures, draws, or knows MPI.
Read next: `minidist/plan/simulate.py`, which makes timelines without running anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

COMPUTES = ("forward", "backward", "weights", "update", "compute")
KINDS = (*COMPUTES, "communication", "idle")


@dataclass(frozen=True, slots=True)
class Span:
    """Something that a rank did: `kind` is one of KINDS ("weights": the weights' part of a backward)."""

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

    def seconds(self) -> dict[str, np.ndarray]:
        """Give the seconds of each kind that occurs, as float64 of shape (ranks,): overlaps are counted once."""
        kinds = [kind for kind in KINDS if any(span.kind == kind for span in self.spans)]
        return {kind: self._covered([span for span in self.spans if span.kind == kind]) for kind in kinds}

    def bubble(self) -> np.ndarray:
        """Give each rank's idle share, (ranks,), from the first computation of any rank to the last one's end."""
        computing = [span for span in self.spans if span.kind in COMPUTES]
        if not computing:
            return np.zeros(self.ranks)
        whole = max(span.stop for span in computing) - min(span.start for span in computing)
        return 1 - self._covered(computing) / whole if whole > 0 else np.zeros(self.ranks)

    def _covered(self, spans: Iterable[Span]) -> np.ndarray:
        """Measure for each rank the time that is in at least one of the spans: a layer's may lie in a stage's."""
        seconds, until = np.zeros(self.ranks), np.full(self.ranks, -np.inf)
        for span in sorted(spans, key=lambda span: span.start):
            seconds[span.rank] += max(0.0, span.stop - max(span.start, until[span.rank]))
            until[span.rank] = max(until[span.rank], span.stop)
        return seconds

    def to_dict(self) -> dict[str, Any]:
        """Give plain data that JSON can write: of `sent` only what is not zero, as [source, dest, bytes]."""
        sources, dests = (places.tolist() for places in np.nonzero(self.sent))
        return {
            "ranks": self.ranks,
            "spans": [{k: v for k, v in asdict(span).items() if v is not None} for span in self.spans],
            "flows": [asdict(flow) for flow in self.flows],
            "sent": [[s, d, int(self.sent[s, d])] for s, d in zip(sources, dests, strict=True)],
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
