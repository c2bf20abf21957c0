"""What a rank sends in each collective: messages and payload bytes, from the sizes alone.

    all_reduce(1000, 8, rank=2, size=4, algorithm="ring")     ->  Traffic(messages=6, bytes=12000)

These are the formulas beside the algorithms in `comm/all_reduce.py` and `comm/collectives.py`, written out for uneven
pieces and for every rank, and counted as a communicator counts: what a rank *sends*. A prediction that is wrong by one
message means that somebody has not understood the algorithm, so tests compare all of these with the counters.

Read next: `sent.py`, then `splits.py` and `syncs.py`, which add them up over a training step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, log2

from minidist.comm.all_reduce import choose, ring_blocks
from minidist.comm.two_level import first_ranks, has_two_levels


@dataclass(frozen=True)
class Traffic:
    """Messages, and the bytes of their payloads."""

    messages: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.bytes + other.bytes)

    def __mul__(self, times: int) -> Traffic:
        return Traffic(self.messages * times, self.bytes * times)


def total(parts: Iterable[Traffic]) -> Traffic:
    """Add up."""
    return sum(parts, Traffic())


def even(n: int, ranks: int) -> list[int]:
    """Give the sizes of n elements' pieces, the first ones longer by one where they must be."""
    return [n // ranks + (rank < n % ranks) for rank in range(ranks)]


def all_reduce(
    n: int,
    itemsize: int,
    rank: int,
    size: int,
    algorithm: str | None = None,
    nodes: Sequence[int] | None = None,
) -> Traffic:
    """Cost of an all-reduce of n numbers of `itemsize` bytes; algorithm: as for `Communicator.all_reduce`.

    nodes: which machine each rank is on, as `Communicator.nodes`; None: all are on one.
    """
    nbytes = n * itemsize
    nodes = nodes or [0] * size
    if algorithm == "two_level" or (algorithm is None and has_two_levels(nodes)):
        return two_level(n, itemsize, rank, nodes)
    algorithm = algorithm or choose(nbytes, len(set(nodes)))
    if size == 1:
        return Traffic()
    if algorithm == "shared":  # reads of the others' piece, and writes to it
        return Traffic(2 * (size - 1), 2 * (size - 1) * even(n, size)[rank] * itemsize)
    if algorithm in ("ring", "staged"):
        blocks = [even(block.stop - block.start, size) for block in ring_blocks(n, itemsize, size)]
        # The reduce-scatter passes on every piece but the own one, the all-gather every piece but the next rank's.
        kept = sum(pieces[rank] + pieces[(rank + 1) % size] for pieces in blocks) * itemsize
        return Traffic(2 * (size - 1) * len(blocks), 2 * nbytes - kept)
    if algorithm == "recursive_doubling":
        power = 1 << (size.bit_length() - 1)
        paired = 2 * (size - power)
        if rank < paired and rank % 2:
            return Traffic(1, nbytes)
        return Traffic(1, nbytes) * (int(log2(power)) + (rank < paired))
    if algorithm == "naive":
        return Traffic(1, nbytes) * (size - 1 if rank == 0 else 1)
    if algorithm == "tree":
        return reduce(nbytes, rank, size) + broadcast(nbytes, rank, size)
    raise ValueError(f"nobody knows what {algorithm!r} sends")


def two_level(n: int, itemsize: int, rank: int, nodes: Sequence[int]) -> Traffic:
    """Cost of an all-reduce in two levels; rank r is on machine nodes[r]."""
    here = [other for other, node in enumerate(nodes) if node == nodes[rank]]
    place, nbytes = here.index(rank), n * itemsize
    within = reduce(nbytes, place, len(here)) + broadcast(nbytes, place, len(here))
    firsts = first_ranks(nodes)
    if rank not in firsts:
        return within
    return within + all_reduce(n, itemsize, firsts.index(rank), len(firsts), nodes=firsts)


def reduce(nbytes: int, rank: int, size: int, root: int = 0) -> Traffic:
    """Cost of a reduce to the root: everybody else sends once, up the tree."""
    return Traffic(1, nbytes) * (rank != root)


def broadcast(nbytes: int, rank: int, size: int, root: int = 0) -> Traffic:
    """Cost of a broadcast: one message for each child in the binomial tree."""
    me, children, distance = (rank - root) % size, 0, 1
    while distance < size and not me & distance:
        children += me + distance < size
        distance *= 2
    return Traffic(1, nbytes) * children


def all_gather(pieces: Sequence[int], rank: int) -> Traffic:
    """Cost of an all-gather of pieces of so many bytes: all but the next rank's are passed on."""
    size = len(pieces)
    return Traffic(size - 1, sum(pieces) - pieces[(rank + 1) % size]) if size > 1 else Traffic()


def reduce_scatter(pieces: Sequence[int], rank: int) -> Traffic:
    """Cost of a reduce-scatter: partial sums of all pieces but the own one are passed on."""
    return Traffic(len(pieces) - 1, sum(pieces) - pieces[rank])


def all_to_all(pieces: Sequence[int], rank: int) -> Traffic:
    """Cost of an all-to-all in which this rank gives piece r to rank r."""
    return Traffic(len(pieces) - 1, sum(pieces) - pieces[rank])


def gather(nbytes: int, rank: int, root: int = 0) -> Traffic:
    """Cost of a gather: one message to the root."""
    return Traffic(1, nbytes) * (rank != root)


def barrier(size: int) -> Traffic:
    """Cost of a barrier: empty messages at distances 1, 2, 4, ..."""
    return Traffic(ceil(log2(size)), 0)
