"""All-reduce in memory that all ranks see: nothing is sent, every rank adds up one piece of everybody's vector.

    rank 0's vector   [ a0 | a1 | a2 ]     rank r reads piece r of all vectors, adds in rank order, and
    rank 1's vector   [ b0 | b1 | b2 ]     writes the sum into all of them: one pass, each number is
    rank 2's vector   [ c0 | c1 | c2 ]     loaded once from each vector and stored once into each

    rank 0   ready, wait for all | add piece 0 | done, wait for all        nobody touches another's piece
    rank 1   ready, wait for all | add piece 1 | done, wait for all

"Ready" and "done" are numbers beside each rank's vector, which count its all-reduces and so never have to be reset.
They are stored with *release* and read with *acquire*: whoever sees the number also sees the vector as it was when
the number was stored. While a rank waits it does what it does in all other waits (`progress.py`).

Cost for p ranks and vectors of n bytes: every rank reads (p-1)/p n bytes of others and writes as many; that is what
the ring sends and receives, and it is counted so: p-1 reads and p-1 writes of n/p bytes (in fact pieces end where
cache lines do).

The memory comes from `comm.allocate_shared(n, dtype)`; `mapping.py` says how processes get to see it.
"""

from __future__ import annotations

import mmap
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minidist import _kernels as kernels
from minidist._kernels.reference import COMPLETE, MEETING, SUMMED, UNLIKE
from minidist.comm.arrays import cut, is_plain
from minidist.comm.channel import Channel
from minidist.comm.collectives import all_gather
from minidist.comm.errors import MessageMismatch
from minidist.comm.progress import Steps
from minidist.comm.reductions import working_dtype

if TYPE_CHECKING:
    from minidist.comm.communicator import Communicator

# Who waits for nothing else looks so many times longer before it hands over to the list of what is in flight, which
# costs 40 to 60 us: sums of 4 MB take 210 us instead of 275, for the ranks' times differ by more than a short look.
LONGER = 10
LINE = 64  # bytes: numbers of different ranks are on different cache lines, and so are their pieces
READY, DONE, START, LENGTH, KIND = range(5)  # what stands in a rank's line, as int64


class SharedMemory:
    """One vector of n numbers for each rank, in memory that all ranks of `comm` see.

    The array that `allocate_shared` gives is this rank's vector, and keeps this object alive as its `base`.
    """

    def __init__(self, comm: Communicator, n: int, dtype: np.dtype) -> None:
        self.endpoint = comm.endpoint
        mine = np.array([[n, zlib.crc32(dtype.str.encode())]])
        call = "allocate_shared", lambda channel: all_gather(channel, mine), "control"
        asked = comm._now(comm._collective, *call, dtype=dtype, shape=(n,))  # (ranks, 2)
        if n < 0 or (asked != asked[0]).any():
            raise MessageMismatch(
                f"this rank asks for {n} numbers of {dtype}, the ranks for {asked[:, 0].tolist()}: "
                "give the same n >= 0 and dtype on every rank"
            )
        nbytes = n * dtype.itemsize
        stretch = -(-(LINE + nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = comm.endpoint.share(comm, stretch)  # (ranks, stretch)
        self.lines = memory[:, :LINE].view(np.int64)  # (ranks, 8)
        self.numbers = list(self.lines)
        self.vectors = memory[:, LINE : LINE + nbytes]  # (ranks, nbytes)
        self.started = self.completed = 0  # all-reduces of this rank
        own = self.vectors[comm.rank].view(dtype)
        self.address = kernels.address_of(own)
        self.__array_interface__ = own.__array_interface__  # how np.asarray(self) makes an array of it
        self._plans: dict[tuple[int, int, np.dtype, str], Plan] = {}

    def plan(self, rank: int, x: np.ndarray, op: str) -> Plan:
        """Say what this rank has to do for x; a training reduces the same buckets in every step."""
        facts = (kernels.address_of(x) - self.address, x.nbytes, x.dtype, op)
        plan = self._plans.get(facts)
        if plan is None:
            start, nbytes, dtype, _ = facts
            told = np.array([start, nbytes, zlib.crc32(f"{dtype.str} {op}".encode())])
            line, end = start // LINE, -(-(start + nbytes) // LINE)  # the cache lines that the stretch is on
            mine = cut(end - line, len(self.vectors))[rank]
            piece = slice(
                max((line + mine.start) * LINE, start), min((line + mine.stop) * LINE, start + nbytes)
            )
            parts = self.vectors[:, piece].view(dtype)
            even = cut(x.size, len(self.vectors))[rank]
            nominal = (even.stop - even.start) * dtype.itemsize
            has_kernel = op == "sum" and dtype in (np.float32, np.float64)
            plan = self._plans[facts] = Plan(told, parts, has_kernel, nominal)
        return plan


@dataclass(frozen=True)
class Plan:
    """What one rank does in the all-reduce of one stretch."""

    told: np.ndarray  # the stretch's start and bytes, a digest of dtype and op: the same on every rank
    parts: np.ndarray  # (ranks, n) this rank's piece of every vector: cache lines that nobody else writes
    has_kernel: bool
    nbytes: int  # of one of the parts, as it is counted: the stretch cut evenly


class Begun(NamedTuple):
    """An all-reduce that was begun, and how far it came (`meet_and_sum`)."""

    plan: Plan
    number: int
    stage: int


def memory_for(comm: Communicator, x: np.ndarray, out: np.ndarray) -> SharedMemory | None:
    """Give the memory of `comm` in which x lies and can be reduced in place; None if it must be sent."""
    base: Any = out
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, SharedMemory) or base.endpoint is not comm.endpoint or not x.size:
        return None
    in_place = x is out or (kernels.address_of(x) == kernels.address_of(out) and x.strides == out.strides)
    return base if in_place and is_plain(out) else None


class Turn:
    """Wait until this rank's all-reduce before this one is complete: a rank's line speaks of one at a time."""

    peer: int | None = None
    source, count = -1, 0
    sending, tag = False, -1

    def __init__(self, shared: SharedMemory, number: int) -> None:
        self.shared, self.number, self.done = shared, number, False

    def test(self) -> bool:
        """Say whether it is this one's turn."""
        self.done = self.shared.completed == self.number - 1
        return self.done


def begin(shared: SharedMemory, rank: int, x: np.ndarray, op: str, looks: int) -> Begun:
    """Begin an all-reduce, and go as far as it goes at once.

    If it is this one's turn and the other ranks come in a moment, one call of a kernel does it all. That matters in
    vectors of less than a megabyte, where Python's steps would take as long as the sum.
    """
    plan, number, stage = shared.plan(rank, x, op), shared.started + 1, MEETING
    if looks and plan.has_kernel and shared.completed == shared.started:
        stage = kernels.meet_and_sum(shared.lines, rank, number, plan.told, plan.parts, looks)
        if stage == COMPLETE:
            shared.completed = number
    shared.started = number
    return Begun(plan, number, stage)


def all_reduce(
    channel: Channel,
    shared: SharedMemory,
    x: np.ndarray,
    op: str,
    reduce_two: np.ufunc,
    begun: Begun | None,
) -> Steps:
    """Combine all ranks' x in place; x is C-ordered and the same stretch of every rank's vector."""
    plan, number, stage = begun or begin(shared, channel.rank, x, op, shared.endpoint.looks)
    told, stretches = shared.lines[:, START : KIND + 1], []
    try:
        if shared.completed < number - 1:
            yield (Turn(shared, number),)
        if stage == MEETING:
            told[channel.rank] = plan.told
            if missing := channel.meet(shared.numbers, READY, number):
                yield missing
            stage = UNLIKE if (told != plan.told).any() else SUMMED
            if stage == SUMMED:
                reduce_all(list(plan.parts), op, reduce_two)
        if stage == UNLIKE:
            stretches = [(start, start + nbytes) for start, nbytes, _ in told.tolist()]
        if stage != COMPLETE and (missing := channel.meet(shared.numbers, DONE, number)):
            yield missing
    finally:
        shared.completed = max(shared.completed, number)
    if stage == UNLIKE:
        start, nbytes, _ = plan.told.tolist()
        raise MessageMismatch(
            f"this rank reduces {x.dtype} by {op!r} in bytes {start} to {start + nbytes} of its shared vector, and the "
            f"ranks' stretches are {stretches}: give the same stretch, dtype and op on every rank; nothing was written"
        )
    channel.count_shared(plan.nbytes)
    return x


def reduce_all(parts: list[np.ndarray], op: str, reduce_two: np.ufunc) -> None:
    """Replace each of the ranks' parts by what all of them combine to, in rank order."""
    dtype = parts[0].dtype
    if op == "sum" and dtype in (np.float32, np.float64):
        kernels.sum_into_all(parts)
        return
    total = parts[0].astype(working_dtype(dtype))
    for part in parts[1:]:
        reduce_two(total, part, out=total)
    for part in parts:
        part[...] = total
