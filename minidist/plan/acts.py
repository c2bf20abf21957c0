"""What a rank does, as plain data for the simulator: compute, send, receive, take part in a collective, wait.

    Compute("forward", "blocks.0", 2e-3), Send(1, 4096, "F0"), Receive(1, "B0"), Collect("all_reduce", ...), Wait("b0")

A rank's program is a row of acts. A training's become acts in `minidist/simulate/program.py`: a pipeline's instructions
one by one and in their order.
Read next: `simulate.py`, which plays them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute for so many seconds. kind: as in `trace/timeline.py`."""

    kind: str
    name: str
    seconds: float
    microbatch: int | None = None
    chunk: int | None = None
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Start to send so many bytes to a rank."""

    dest: int
    bytes: int
    tag: Hashable


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for a message."""

    source: int
    tag: Hashable


@dataclass(frozen=True, slots=True)
class Collect:
    """Start a collective of `members` on n numbers of `itemsize` bytes; who wants its result waits for its tag.

    algorithm: of an all-reduce, as for `Communicator.all_reduce`. tag: the same on all members, and used once.
    """

    operation: str  # "all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier" or "tell"
    members: tuple[int, ...]  # world ranks
    n: int
    itemsize: int
    tag: Hashable
    algorithm: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for a collective that this rank has started."""

    tag: Hashable


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask each other member for its piece, by a message of `question` bytes, and wait for all of them.

    pieces: bytes of each member's. They answer without being waited for (`comm/shelf.py`).
    """

    members: tuple[int, ...]
    pieces: tuple[int, ...]
    question: int
    tag: Hashable


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold so many bytes more than before; fewer if below 0."""

    bytes: int


Act = Compute | Send | Receive | Collect | Wait | Fetch | Hold
