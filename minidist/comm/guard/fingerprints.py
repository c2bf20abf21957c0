"""Fingerprints: before a collective moves any data, its ranks tell each other what they call, and compare.

    rank 0   all_reduce(float64 (16,), 'sum')   --\\
    rank 1   all_reduce(float64 (16,), 'sum')   ---+--> all alike: go on
    rank 2   broadcast(float64 (4,), root=0)    --/    they differ: all raise CollectiveMismatch, nothing was sent

It is a gate (`comm/events.py`): one small message to each other member, which nobody waits for by itself. So a
collective in the background stays there. The n-th collective of a communicator has the n-th tag on every rank: what
meets is what has the same number. p ranks send p (p-1) messages of some 100 bytes; none where all see the same memory
(`slots.py`).

Read `graph.py` next: what becomes of a rank that never comes.
"""

from __future__ import annotations

import functools
import json
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.comm.arrays import describe
from minidist.comm.errors import CollectiveMismatch
from minidist.comm.guard.report import HEAD, name_ranks, note_first, source

if TYPE_CHECKING:
    from minidist.comm.core import Core
    from minidist.comm.events import Event
    from minidist.comm.transport import TransportRequest

LONGEST = 1024  # bytes of a fingerprint
# Seconds that a rank which has seen a difference waits for the others, unless they can never come.
GRACE = 2.0
BY_ROWS = ("all_gather", "gather", "all_to_all")  # row counts may differ
OF_ROOT = ("broadcast", "scatter")  # only the root's array counts


@dataclass(frozen=True)
class Fingerprint:
    """What one rank calls."""

    call: str
    reduction: str | None
    root: int | None
    dtype: str | None
    shape: tuple[int, ...] | None
    counts: tuple[int, ...] | None
    line: str

    def words(self) -> str:
        """Give the call as in the program: all_reduce(float64 (16,), 'sum')."""
        said = [] if self.dtype is None or self.shape is None else [describe(self.dtype, self.shape)]
        said += [f"op={self.reduction!r}"] * (self.reduction is not None)
        said += [f"root={self.root}"] * (self.root is not None)
        said += [] if self.counts is None else [f"counts={list(self.counts)}"]
        return f"{self.call}({', '.join(said)})"

    def must_agree(self, comm_rank: int) -> tuple[Any, ...]:
        """Give what must be equal on all ranks; of an array only what the operation needs to be equal."""
        operation = self.call.removeprefix("i")
        array: Any = (self.dtype, self.shape)
        if operation in BY_ROWS and self.shape is not None:
            array = (self.dtype, (len(self.shape), *self.shape[1:]) if len(self.shape) else (1,))
        elif operation in OF_ROOT:
            array = None
        return self.call, self.reduction, self.root, array, self.counts


def of(event: Event) -> Fingerprint:
    """Give the fingerprint of an operation that begins."""
    dtype = None if event.dtype is None else event.dtype.newbyteorder("=").str
    line = event.line[-600:]
    return Fingerprint(event.call, event.reduction, event.root, dtype, event.shape, event.counts, line)


def pack(fingerprint: Fingerprint) -> np.ndarray:
    """Give a fingerprint as bytes."""
    f = fingerprint
    facts: list[Any] = [f.call, f.reduction, f.root, f.dtype, f.shape, f.counts, f.line]
    if f.counts is not None and len(f.counts) > 32:
        facts[5] = [hash(f.counts)]
    return np.frombuffer(json.dumps(facts).encode()[:LONGEST], np.uint8)


def digest(fingerprint: Fingerprint) -> int:
    """Give 32 bits that are equal where ranks call the same, on whatever line."""
    return zlib.crc32(repr(replace(fingerprint, line="")).encode())


def unpack(content: np.ndarray) -> Fingerprint:
    """Read what `pack` gave."""
    call, reduction, root, dtype, shape, counts, line = json.loads(content.tobytes())
    as_tuple = [None if value is None else tuple(value) for value in (shape, counts)]
    return Fingerprint(call, reduction, root, dtype, as_tuple[0], as_tuple[1], line)


def differ(fingerprints: dict[int, Fingerprint]) -> str | None:
    """Say what differs between these ranks of a communicator; None: nothing."""
    ranks = sorted(fingerprints)
    first = fingerprints[ranks[0]]
    for rank in ranks[1:]:
        names = ("the call", "op", "root", "dtype and shape", "counts")
        pairs = zip(names, first.must_agree(ranks[0]), fingerprints[rank].must_agree(rank), strict=True)
        different = [(name, one, other) for name, one, other in pairs if one != other]
        if different:
            name, one, other = different[0]
            if len(different) == 1 and name == "dtype and shape":
                return "the dtype" if one[1] == other[1] else "the shape"
            return name
    if first.call.removeprefix("i") == "broadcast" and first.root in fingerprints:
        root = fingerprints[first.root]
        for rank in ranks:
            mine = fingerprints[rank]
            if mine.dtype is not None and (mine.dtype, mine.shape) != (root.dtype, root.shape):
                return "the dtype" if mine.shape == root.shape else "the shape"
    return None


Said = Callable[
    [], np.ndarray | None
]  # gives the fingerprint with which another rank has come; None: it has not


class Agreement:
    """The last of a gate's requests: complete when all members have come with the same; raises if they differ."""

    peer: int | None = None
    source, count, sending, tag = -1, 0, False, -1

    def __init__(self, comm: Core, sequence: int, mine: np.ndarray, others: dict[int, Said]):
        self.comm, self.sequence, self.mine = comm, sequence, mine
        self.others = others
        self.missing = dict(others)
        self.alike = True  # as far as has been heard
        self.done = False
        self.since: float | None = None  # when a difference was seen

    def test(self) -> bool:
        """Look who has come."""
        if self.done:
            return True
        came = {rank: content for rank, said in self.missing.items() if (content := said()) is not None}
        for rank, content in came.items():
            del self.missing[rank]
            if content is not self.mine and not np.array_equal(content, self.mine):
                self.alike = False
        if self.alike or (self.since is None and differ(self.heard()) is None and self.missing):
            self.done = not self.missing
            return self.done
        if self.since is None:
            self.since = time.monotonic()
        if not self.missing or time.monotonic() - self.since > GRACE:
            self.done = True
            error = self.mismatch()
            if error is not None:
                raise error
        return self.done

    def hurry(self) -> None:
        """Wait for nobody any more, because nobody will come."""
        if self.since is not None:
            self.since -= GRACE

    def heard(self) -> dict[int, Fingerprint]:
        """Give the fingerprints that are known, by rank in the communicator."""
        said = {rank: said() for rank, said in self.others.items()}
        known = {
            rank: unpack(content) for rank, content in said.items() if content is not None and content.size
        }
        return {self.comm.rank: unpack(self.mine), **known}

    def mismatch(self) -> CollectiveMismatch | None:
        """Give the report if those that are known differ."""
        heard = self.heard()
        what = differ(heard)
        if what is None:
            return None
        members = self.comm.members
        error = CollectiveMismatch(
            tell(self.comm.name, self.sequence, what, {members[r]: f for r, f in heard.items()}),
            "mismatch",
            [members[r] for r in heard],
            {members[r]: f.line for r, f in heard.items()},
        )
        note_first(error, 0.0 if self.since is None else time.monotonic() - self.since)
        return error


def tell(name: str, sequence: int, what: str, calls: dict[int, Fingerprint]) -> str:
    """Write the report: who calls what, where, and what to look at. calls: by world rank."""
    groups: dict[tuple[str, str], list[int]] = {}
    for rank in sorted(calls):
        groups.setdefault((calls[rank].words(), calls[rank].line), []).append(rank)
    who = {group: name_ranks(ranks) for group, ranks in groups.items()}
    wide = max(len(text) for text in who.values())
    lines = [f"{HEAD}collective #{sequence} on {name!r} differs between ranks in {what}; nothing was sent."]
    for (words, line), ranks in groups.items():
        text, verb = who[words, line], "calls" if len(ranks) == 1 else "call "
        lines.append(f"  {text:{wide}} {verb} {words}   {source(line)}")
    return "\n".join([*lines, advice(what, list(calls.values()))])


def advice(what: str, calls: list[Fingerprint]) -> str:
    """Say what to look at."""
    usual = Counter(calls).most_common(1)[0][0]
    other = next((call for call in calls if call.must_agree(0) != usual.must_agree(0)), calls[-1])
    if what == "the call":
        if usual.call.removeprefix("i") == other.call.removeprefix("i"):
            return "One waits at once and the other does not, and these do not meet: call the same form on all ranks."
        return (
            "Every rank must call the same collectives in the same order: have two calls changed places, "
            "or does a condition around one of these lines differ between ranks?"
        )
    if what == "the dtype":
        return f"Give all ranks one dtype, for instance with .astype({np.dtype(usual.dtype).name!r})."
    if what == "the shape" and usual.shape and other.shape:
        if usual.shape == other.shape[::-1]:
            return "One is the transpose of the other: give it as x.T.copy() there, or do not transpose it."
        if usual.shape[1:] == other.shape[1:]:
            return "Only the first dim differs: is the last batch a ragged one, or are the shares of rows uneven?"
        return (
            "Every rank must give an array of the same shape, also where the number of elements is the same."
        )
    return f"Give the same {what.removeprefix('the ')} on all ranks."


def gate(quiet: Core, event: Event, content: np.ndarray) -> list[TransportRequest]:
    """Tell all other members of a communicator what this rank calls; give the requests of the gate.

    quiet: a communicator of the same ranks without listeners. event: of a collective.
    """
    assert event.sequence is not None
    endpoint, comm = quiet.endpoint, event.communicator
    tag = endpoint.guard_tags[event.sequence % len(endpoint.guard_tags)]
    others = [(quiet.rank + step) % quiet.size for step in range(1, quiet.size)]
    sends = [endpoint.isend(content, rank, tag) for rank in others]
    comm.count("guard", content.nbytes, len(others))
    receives = {}
    said: dict[int, Said] = {}
    for rank in others:
        buffer = np.empty(LONGEST, np.uint8)
        receives[rank] = request = endpoint.irecv(buffer, rank, tag, exact=False)
        said[rank] = functools.partial(_received, request, buffer)
    return [*sends, *receives.values(), Agreement(comm, event.sequence, content, said)]


def _received(request: Any, buffer: np.ndarray) -> np.ndarray | None:
    """Give the fingerprint that a message has brought; None: it has not come."""
    return buffer[: request.count] if request.done else None
