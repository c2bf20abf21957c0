"""All-reduce from scratch: every rank has a vector, and every rank ends with the sum of all of them.

Four ways, each in terms of send and receive alone. With p ranks and n bytes per vector:

    way                  steps on the longest path      bytes through the busiest rank (sent)
    naive                2 (p-1)                        (p-1) n
    tree                 2 log2 p                       log2(p) n
    recursive doubling   log2 p (+2)                    log2(p) n
    ring                 2 (p-1)                        2 (p-1)/p n      the least possible

Where the ranks can see each other's memory, nothing need be sent at all: `shared_memory.py`.

Few steps win for short vectors, few bytes for long ones. Each function works in place on `x`, a flat C-ordered
vector, and is a generator that yields the messages it waits for (`progress.py`). `reduce_two` is np.add or another
ufunc.

a + b + c depends on the order in floating point, and so can even max(0.0, -0.0). So each way either forms a sum
once and hands it out, or forms it everywhere in the same order: every rank ends with the same bytes.

Thakur, Rabenseifner & Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 2005.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minidist.comm.arrays import cut, is_plain
from minidist.comm.channel import Channel
from minidist.comm.progress import Steps
from minidist.comm.reductions import working_dtype

# On 2, 3 and 4 ranks of a 2-core machine recursive doubling is up to twice as fast below 512 KiB (each step of the
# ring costs some 20 us), both are equal at about 1 MiB, and at 16 MiB the ring takes 0.7 of the time.
RING_FROM = 1 << 20  # bytes
# Between machines a byte costs more, a step no more than before: at 1 Gbit/s and 100 Mbit/s, on 2 and 4 machines, both
# are equal at some 32 KiB, and from 64 KiB on the ring takes 0.65 to 1 of the time.
RING_FROM_BETWEEN_MACHINES = 1 << 16  # bytes
# What a rank has received should still be in its cache when it adds to it and sends the sum on: on 2 ranks with 2 MB
# of cache each, vectors of 2 to 16 MB take 0.8 of the time in messages of 512 KiB. Smaller ones cost more than that.
RING_MESSAGE = 1 << 19  # bytes, at most


def naive(channel: Channel, x: np.ndarray, reduce_two: np.ufunc) -> Steps:
    """Gather everything on rank 0, sum it in rank order, send the sum to everybody.

        0 <-- 1      0 --> 1
        0 <-- 2      0 --> 2      every message of n bytes
        0 <-- 3      0 --> 3

    Rank 0 sends and receives p-1 messages, (p-1) n bytes each way; the others send and receive one.
    In all 2 (p-1) messages, 2 (p-1) n bytes.
    """
    others = range(1, channel.size)
    if channel.rank == 0:
        theirs = np.empty_like(x)
        for source in others:
            yield (channel.receive(theirs, source),)
            reduce_two(x, theirs, out=x)
        yield [channel.send(x, dest) for dest in others]
    else:
        yield (channel.send(x, 0),)
        yield (channel.receive(x, 0),)


def tree(channel: Channel, x: np.ndarray, reduce_two: np.ufunc) -> Steps:
    """Sum up a binomial tree, then send the sum down the same tree.

        0 <-- 1     2 <-- 3      distance 1
        0 <-------- 2            distance 2, and then back in the opposite order

    Every rank but 0 sends its sum up once; 0 sends down to ceil(log2 p) children.
    In all 2 (p-1) messages, 2 (p-1) n bytes, in 2 ceil(log2 p) steps.
    """
    yield from reduce_tree(channel, x, reduce_two, root=0)
    yield from broadcast_tree(channel, x, root=0)


def reduce_tree(channel: Channel, x: np.ndarray, reduce_two: np.ufunc, root: int) -> Steps:
    """Sum into the root's x, up a binomial tree; other ranks' x is used as working memory."""
    me, distance = (channel.rank - root) % channel.size, 1
    theirs: np.ndarray | None = None
    while distance < channel.size:
        if me & distance:
            yield (channel.send(x, (channel.rank - distance) % channel.size),)
            return
        if me + distance < channel.size:
            theirs = np.empty_like(x) if theirs is None else theirs
            yield (channel.receive(theirs, (channel.rank + distance) % channel.size),)
            reduce_two(x, theirs, out=x)
        distance *= 2


def broadcast_tree(channel: Channel, x: np.ndarray, root: int) -> Steps:
    """Send the root's x down a binomial tree."""
    parent, children = tree_neighbours(channel, root)
    if parent is not None:
        yield (channel.receive(x, parent),)
    yield [channel.send(x, child) for child in children]


def tree_neighbours(channel: Channel, root: int) -> tuple[int | None, list[int]]:
    """Give this rank's parent and children in the binomial tree under `root`, the largest subtree first."""
    me, distance = (channel.rank - root) % channel.size, 1
    while distance < channel.size and not me & distance:
        distance *= 2
    parent = (channel.rank - distance) % channel.size if me else None
    children = []
    while distance > 1:
        distance //= 2
        if me + distance < channel.size:
            children.append((channel.rank + distance) % channel.size)
    return parent, children


def recursive_doubling(channel: Channel, x: np.ndarray, reduce_two: np.ufunc) -> Steps:
    """Exchange sums with partners at distance 1, 2, 4, ...: after each step a sum covers twice as many ranks.

        0 <-> 1     2 <-> 3      distance 1
        0 <-> 2     1 <-> 3      distance 2

    If p is not a power of two, the first 2 (p-q) ranks are folded into pairs first, where q is the largest power of
    two below p: the odd one of a pair gives its vector to the even one, and gets the sum at the end.
    A rank that takes part sends log2 q messages of n bytes, and a pair sends one more each.
    In all q log2 q + 2 (p-q) messages.
    """
    rank, size = channel.rank, channel.size
    power = 1 << (size.bit_length() - 1)
    paired = 2 * (size - power)  # ranks below this one are folded into pairs
    theirs = np.empty_like(x)
    if rank < paired and rank % 2:
        yield (channel.send(x, rank - 1),)
        yield (channel.receive(x, rank - 1),)
        return
    if rank < paired:
        yield (channel.receive(theirs, rank + 1),)
        reduce_two(x, theirs, out=x)
    me = rank // 2 if rank < paired else rank - paired // 2  # number among the `power` ranks that take part
    distance = 1
    while distance < power:
        other = me ^ distance
        partner = other * 2 if other * 2 < paired else other + paired // 2
        yield channel.send(x, partner), channel.receive(theirs, partner)
        if me < other:
            reduce_two(x, theirs, out=x)
        else:
            reduce_two(theirs, x, out=x)
        distance *= 2
    if rank < paired:
        yield (channel.send(x, rank + 1),)


def ring(channel: Channel, x: np.ndarray, reduce_two: np.ufunc) -> Steps:
    """Cut the vector into p chunks; pass partial sums around a ring, then pass the finished chunks around.

        0 --> 1 --> 2 --> 3 --> 0       p-1 steps reduce-scatter: rank r ends with the sum of chunk r
                                        p-1 steps all-gather: the sums go round

    Every rank sends 2 (p-1) messages of n/p bytes: 2 (p-1)/p n bytes, which no all-reduce can undercut, and
    every link is busy in every step. Chunks may be empty (fewer numbers than ranks). A long vector goes round block
    by block, which multiplies the messages and not the bytes.

    Patarasuk & Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", JPDC 2009.
    """
    for block in ring_blocks(x.size, x.itemsize, channel.size):
        chunks = [x[block][piece] for piece in cut(block.stop - block.start, channel.size)]
        yield from ring_reduce_scatter(channel, chunks, reduce_two, out=chunks[channel.rank])
        yield from ring_all_gather(channel, chunks)


def ring_blocks(n: int, itemsize: int, size: int) -> list[slice]:
    """Cut a vector of n numbers into the blocks that go round the ring one after the other."""
    return cut(n, max(1, -(-n * itemsize // (RING_MESSAGE * size))))


def ring_reduce_scatter(
    channel: Channel, chunks: list[np.ndarray], reduce_two: np.ufunc, out: np.ndarray
) -> Steps:
    """Pass partial sums around the ring, each rank adding its own; `out` becomes the sum of chunks[rank].

    Chunk c starts at rank c+1 and comes home to rank c. The chunks are only read.
    """
    rank, size = channel.rank, channel.size
    longest = max(chunk.size for chunk in chunks)
    partial, spare = np.empty(longest, out.dtype), np.empty(longest, out.dtype)  # one is sent, one is filled
    sending = chunks[(rank - 1) % size]
    for step in range(1, size):
        mine = chunks[(rank - step - 1) % size]
        received = partial[: mine.size]
        yield channel.send(sending, (rank + 1) % size), channel.receive(received, (rank - 1) % size)
        sending = reduce_two(received, mine, out=received if step < size - 1 else out)
        partial, spare = spare, partial


def ring_all_gather(channel: Channel, chunks: list[np.ndarray]) -> Steps:
    """Pass finished chunks around the ring: rank r begins with chunks[r] and ends with all of them."""
    rank, size = channel.rank, channel.size
    for step in range(size - 1):
        mine, next_ = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        yield channel.send(mine, (rank + 1) % size), channel.receive(next_, (rank - 1) % size)


ALGORITHMS: dict[str, Callable[[Channel, np.ndarray, np.ufunc], Steps]] = {
    "naive": naive,
    "tree": tree,
    "recursive_doubling": recursive_doubling,
    "ring": ring,
}


def choose(nbytes: int, machines: int = 1) -> str:
    """Choose the way for a vector of `nbytes` bytes, for ranks on so many machines; the same on every rank."""
    ring_from = RING_FROM if machines == 1 else RING_FROM_BETWEEN_MACHINES
    return "ring" if nbytes >= ring_from else "recursive_doubling"


def all_reduce(
    channel: Channel,
    x: np.ndarray,
    op: str,
    reduce_two: np.ufunc,
    out: np.ndarray | None,
    algorithm: str | None,
) -> Steps:
    """Combine all ranks' x into `out` (or a new array), by the given algorithm or the one chosen by size."""
    dtype = working_dtype(x.dtype)
    if out is not None and is_plain(out) and out.dtype == dtype:
        result = out
        if out is not x:
            np.copyto(result, x)
    else:
        result = np.array(x, dtype)
    algorithm = algorithm or choose(result.nbytes, len(set(channel.comm.nodes)))
    if channel.size > 1 and algorithm == "mpi":
        yield (channel.mpi_all_reduce(result, op),)
    elif channel.size > 1:
        yield from ALGORITHMS[algorithm](channel, result.reshape(-1), reduce_two)
    if out is None:
        return result.astype(x.dtype, copy=False)
    if result is not out:
        out[...] = result
    return out
