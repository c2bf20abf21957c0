"""All-reduce of arrays of one's own through a small scratch that all ranks of a machine see: it stays in the cache.

    a rank's vector    | block 0 | block 1 | block 2 | ...      each block is cut into one piece for each rank

    step        0         1         2         3                 all ranks meet after each step
    block 0     give      sum       fetch                       give:  copy the others' pieces into the own scratch
    block 1               give      sum       fetch             sum:   replace the own piece in all scratches, and in
    block 2                         give      sum                      the result, by the sum in rank order
                                                                fetch: copy the others' sums from the own scratch

A rank's array is its own, so other ranks cannot read it as they read memory from `allocate_shared`
(`shared_memory.py`). Sent as messages, all of it is copied several times, from memory and to memory. Here all passes
through two blocks per rank, which are used again and again: what one rank has written, the others read from a cache.
Two are enough, for whoever writes into a block has met the others since they read what was there.

Cost for p ranks and vectors of n bytes: every rank reads (p-1)/p n bytes of others and writes as many, which is what
the ring sends and receives, and copies as much twice more within its cache. It is counted as the ring, whose place it
takes: so a plan need not know whether the ranks can share memory. They meet n / BLOCK + 2 times. A cache line passes
from its rank to the one that sums it and back, each time at once for writing: half as often as if each wrote its own.

Chosen by `comm.all_reduce` for sums of float32 and float64 where it would choose the ring, and all ranks are processes
on one machine that has a core for each and can share memory. The first such call makes the scratch; what that sends is
no part of an all-reduce and not counted. Not for `iall_reduce`: its ranks do not come at the same time, and would wait
for each other after each block.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from minidist import _kernels as kernels
from minidist.comm.all_reduce import RING_FROM, ring_blocks
from minidist.comm.arrays import cut, is_plain
from minidist.comm.channel import Channel
from minidist.comm.errors import MessageMismatch, NotShared
from minidist.comm.progress import Steps
from minidist.comm.shared_memory import LINE, LONGER

if TYPE_CHECKING:
    from minidist.comm.communicator import Communicator


BLOCK = 1 << 17  # bytes; two of them for each rank: half as much or twice as much is up to a tenth slower
PLACE = 0  # of the number in a rank's line by which it meets the others


class Scratch:
    """Two blocks for each rank, and a line to meet by; memory that all ranks of a communicator see."""

    def __init__(self, memory: np.ndarray, looks: int, crowded: bool) -> None:
        self.looks = looks
        self.crowded = crowded  # ranks that meet then wait for each other's turn on a core
        self.lines = memory[:, :LINE].view(np.int64)  # (ranks, 8)
        self.numbers = list(self.lines)
        blocks = memory[:, -2 * BLOCK :]  # (ranks, 2 blocks)
        self.blocks = {np.dtype(dtype): blocks.view(dtype) for dtype in (np.float32, np.float64)}


def suits(comm: Communicator, x: np.ndarray, op: str) -> bool:
    """Say whether such arrays are to be reduced in this way if the ranks can share memory: alike on every rank."""
    return (
        x.nbytes >= RING_FROM
        and op == "sum"
        and x.dtype.char in "fd"
        and comm.transport == "mpi"
        and comm.nodes.count(comm.nodes[0]) == comm.size > 1
    )


def make_scratch(comm: Communicator) -> Scratch | None:
    """Make the scratch of `comm`, which must be all its ranks' next step; None on all of them if it cannot be had."""
    try:
        memory = comm.endpoint.share(comm, -(-(LINE + 2 * BLOCK) // 4096) * 4096)
    except NotShared:
        return None
    crowded = comm.all_gather(np.array([comm.endpoint.looks == 1]), purpose="control").any()
    return Scratch(memory, comm.endpoint.looks, bool(crowded))


def all_reduce(
    channel: Channel, scratch: Scratch, number: int, x: np.ndarray, out: np.ndarray | None
) -> Steps:
    """Sum all ranks' x into `out` (or a new array). number: the collective's, from 1."""
    result = out if out is not None and is_plain(out) else np.empty(x.shape, x.dtype)
    given, total = x.reshape(-1), result.reshape(-1)
    if kernels.address_of(given) != kernels.address_of(total) and np.may_share_memory(given, total):
        given = given.copy()
    told = np.array([x.size, zlib.crc32(x.dtype.str.encode())])
    blocks = scratch.blocks[x.dtype]
    first = number << 32  # so no meeting's number comes twice
    looks = scratch.looks * (1 if channel.comm.progress.running else LONGER)
    step, last = 0, -(-x.nbytes // BLOCK) + 1
    while True:
        step = kernels.sum_staged(scratch.lines, channel.rank, first, told, blocks, given, total, step, looks)
        if step > last:
            break
        if step < 0:
            sizes = [length for length, _ in scratch.lines[:, 2:4].tolist()]
            yield channel.meet(scratch.numbers, PLACE, first + (1 << 31))  # before anyone tells something new
            raise MessageMismatch(
                f"this rank gives {x.size} numbers of {x.dtype}, and the ranks give {sizes}: "
                "do all ranks give arrays of the same shape and dtype? Nothing was written"
            )
        yield channel.meet(scratch.numbers, PLACE, first + step)
        step += 1
    count_as_ring(channel, x)
    if result is out or out is None:
        return result
    out[...] = result
    return out


def count_as_ring(channel: Channel, x: np.ndarray) -> None:
    """Count what this rank would send round the ring: sums of all pieces but its own, results of all but the next's."""
    rank, size = channel.rank, channel.size
    dest = (rank + 1) % size
    for block in ring_blocks(x.size, x.itemsize, size):
        for piece, part in enumerate(cut(block.stop - block.start, size)):
            times = (piece != rank) + (piece != dest)
            channel.count(dest, (part.stop - part.start) * x.itemsize, times)
