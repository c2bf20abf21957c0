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
the ring sends and receives, and it is counted so: p-1 reads and p-1 writes of n/p bytes.

The memory comes from `comm.allocate_shared(n, dtype)`; `mapping.py` says how processes get to see it.
"""

from __future__ import annotations

import mmap
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist import _kernels as kernels
from minidist.comm.arrays import cut, is_plain
from minidist.comm.channel import Channel
from minidist.comm.errors import MessageMismatch
from minidist.comm.progress import Steps
from minidist.comm.reductions import working_dtype

if TYPE_CHECKING:
    from minidist.comm.communicator import Communicator

LINE = 64  # bytes: numbers of different ranks are on different cache lines
READY, DONE, START, LENGTH, KIND = range(5)  # what stands in a rank's line, as int64


class SharedMemory:
    """One vector of n numbers for each rank, in memory that all ranks of `comm` see.

    The array that `allocate_shared` gives is this rank's vector, and keeps this object alive as its `base`.
    """

    def __init__(self, comm: Communicator, n: int, dtype: np.dtype) -> None:
        self.endpoint = comm.endpoint
        asked = comm.all_gather(
            np.array([[n, zlib.crc32(dtype.str.encode())]]), purpose="control"
        )  # (ranks, 2)
        if n < 0 or (asked != asked[0]).any():
            raise MessageMismatch(
                f"this rank asks for {n} numbers of {dtype}, the ranks for {asked[:, 0].tolist()}: "
                "give the same n >= 0 and dtype on every rank"
            )
        nbytes = n * dtype.itemsize
        stretch = -(-(LINE + nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = comm.endpoint.share(comm, stretch)  # (ranks, stretch)
        self.numbers = [memory[rank, :LINE].view(np.int64) for rank in range(comm.size)]
        self.vectors = [memory[rank, LINE : LINE + nbytes] for rank in range(comm.size)]  # as bytes
        self.started = self.completed = 0  # all-reduces of this rank
        own = self.vectors[comm.rank].view(dtype)
        self.address = address(own)
        self.__array_interface__ = own.__array_interface__  # how np.asarray(self) makes an array of it
        self._plans: dict[tuple[int, int, np.dtype, str], Plan] = {}

    def plan(self, rank: int, x: np.ndarray, op: str) -> Plan:
        """Say what this rank has to do for x; a training reduces the same buckets in every step."""
        facts = (address(x) - self.address, x.nbytes, x.dtype, op)
        plan = self._plans.get(facts)
        if plan is None:
            start, nbytes, dtype, _ = facts
            stretches = [vector[start : start + nbytes].view(dtype) for vector in self.vectors]
            piece = cut(x.size, len(stretches))[rank]
            kind = zlib.crc32(f"{start} {nbytes} {dtype.str} {op}".encode())
            plan = self._plans[facts] = Plan(start, nbytes, kind, [stretch[piece] for stretch in stretches])
        return plan


@dataclass(frozen=True)
class Plan:
    """What one rank does in the all-reduce of one stretch."""

    start: int  # the stretch, in bytes
    nbytes: int
    kind: int  # a digest of stretch, dtype and op, to be compared with the other ranks'
    parts: list[np.ndarray]  # this rank's piece of every rank's vector


def address(x: np.ndarray) -> int:
    """Give the address of an array's first number."""
    return x.__array_interface__["data"][0]


def memory_for(comm: Communicator, x: np.ndarray, out: np.ndarray) -> SharedMemory | None:
    """Give the memory of `comm` in which x lies and can be reduced in place; None if it must be sent."""
    base: Any = out
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, SharedMemory) or base.endpoint is not comm.endpoint or not x.size:
        return None
    in_place = x is out or (address(x) == address(out) and x.strides == out.strides)
    return base if in_place and is_plain(out) else None


class Turn:
    """Wait until this rank's all-reduce before this one is complete: a rank's line speaks of one at a time."""

    peer: int | None = None
    source, count = -1, 0

    def __init__(self, shared: SharedMemory, number: int) -> None:
        self.shared, self.number, self.done = shared, number, False

    def test(self) -> bool:
        """Say whether it is this one's turn."""
        self.done = self.shared.completed == self.number - 1
        return self.done


def all_reduce(channel: Channel, shared: SharedMemory, x: np.ndarray, op: str, reduce_two: np.ufunc) -> Steps:
    """Combine all ranks' x in place; x is C-ordered and the same stretch of every rank's vector."""
    plan = shared.plan(channel.rank, x, op)
    shared.started += 1
    number, numbers = shared.started, shared.numbers
    try:
        if shared.completed < number - 1:
            yield (Turn(shared, number),)
        numbers[channel.rank][START], numbers[channel.rank][LENGTH] = plan.start, plan.nbytes
        numbers[channel.rank][KIND] = plan.kind
        if missing := channel.meet(numbers, READY, number):
            yield missing
        alike = all(line[KIND] == plan.kind for line in numbers)
        if alike:
            reduce_all(plan.parts, op, reduce_two)
            channel.count_shared(plan.parts[0].nbytes)
        else:
            stretches = [(int(line[START]), int(line[START] + line[LENGTH])) for line in numbers]
        if missing := channel.meet(numbers, DONE, number):
            yield missing
    finally:
        shared.completed = number
    if not alike:
        raise MessageMismatch(
            f"this rank reduces {x.dtype} by {op!r} in bytes {plan.start} to {plan.start + plan.nbytes} of its shared "
            f"vector, and the ranks' stretches are {stretches}: give the same stretch, dtype and op on every rank; "
            "nothing was written"
        )
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
