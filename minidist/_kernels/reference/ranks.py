"""What several ranks do with memory that all of them see; the fast ones: `../ranks.h`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minidist._kernels import checks

MAX_VECTORS = 1024  # that sum_into_all takes at once
MEETING, UNLIKE, SUMMED, COMPLETE = range(4)  # how far meet_and_sum went


def sum_into_all(vectors: Sequence[Any]) -> None:
    """Replace each of several flat vectors by the sum of all, added in the order given: v[0] + v[1] + v[2] ...

    They lie in memory that several ranks see, one of each rank. They must not overlap, which is not checked.
    """
    vectors = checks.vectors_to_sum("sum_into_all", vectors, MAX_VECTORS)
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    for vector in vectors:
        vector[...] = total


def store_release(numbers: Any, i: int, value: int) -> None:
    """Write numbers[i] after everything that this rank has written before: whoever reads it sees that, too.

    numbers: int64 in memory that several ranks see. The plain store here is ordered so on x86 alone.
    """
    checks.numbers("store_release", numbers, i, True)
    numbers[i] = value


def has_reached(numbers: Any, i: int, value: int, looks: int = 1) -> bool:
    """Look, at most so many times, whether numbers[i] >= value; if it is, what was written before it is seen, too.

    See store_release. A look takes some hundredths of a microsecond, so a few hundred bridge the moment in which the
    other rank is just about to come.
    """
    checks.numbers("has_reached", numbers, i, False)
    return any(numbers[i] >= value for _ in range(looks))


def address_of(x: np.ndarray) -> int:
    """Tell where the first number of an array stands in memory."""
    return x.__array_interface__["data"][0]


def meet_and_sum(lines: Any, rank: int, number: int, told: Any, parts: Any, looks: int) -> int:
    """Do what ranks that share memory do in an all-reduce, in one call, as far as it goes without a long wait.

    lines: int64 (ranks, at least 2 + facts), for each rank the number to which it is ready, that to which it is done,
    and then what it is about to do; told: that of this rank, int64 (facts,). parts: (ranks, n), this rank's piece of
    each rank's vector, replaced by the sum. Returns how far it went: MEETING: not all ranks have come; UNLIKE: they
    have, and want to do something else; SUMMED: not all ranks have summed their pieces; COMPLETE.
    """
    checks.meeting("meet_and_sum", lines, rank, told, parts, MAX_VECTORS)
    lines[rank, 2 : 2 + len(told)] = told
    store_release(lines[rank], 0, number)
    if not all(has_reached(line, 0, number, looks) for line in lines):
        return MEETING
    if (lines[:, 2 : 2 + len(told)] != told).any():
        return UNLIKE
    sum_into_all(parts)
    store_release(lines[rank], 1, number)
    return COMPLETE if all(has_reached(line, 1, number, looks) for line in lines) else SUMMED


def sum_staged(
    lines: Any, rank: int, number: int, told: Any, scratch: Any, x: Any, out: Any, step: int, looks: int
) -> int:
    """Sum all ranks' x into their out through a scratch that they share, as far as it goes without a long wait.

    lines, told: see meet_and_sum; only the first number of a line is used, and every meeting has a number of its own:
    number, number + 1 ... scratch: (ranks, 2 blocks), a row for each rank. x, out: flat vectors, the same or apart.
    step: 0 at first. Returns the step whose meeting is not over yet: call again from the next one when it is; the
    number of blocks + 2 if all is done, and -1 if other ranks were told something else: then nothing is written.
    """
    checks.staging("sum_staged", lines, rank, told, scratch, x, out, step, MAX_VECTORS)
    ranks, length = len(scratch), scratch.shape[1] // 2
    blocks, cache_line = -(-x.size // length), 64 // x.itemsize

    def pieces(t: int) -> list[tuple[slice, slice]]:
        """Give for each rank where its piece of block t lies in the vector, and where in a row of the scratch."""
        start, found = t * length, []
        n = min(length, x.size - start)
        each = -(-n // ranks)
        share = -(-each // cache_line) * cache_line  # ranks write to different cache lines
        for r in range(ranks):
            begin, end = min(r * share, n), min((r + 1) * share, n)
            place = t % 2 * length
            found.append((slice(start + begin, start + end), slice(place + begin, place + end)))
        return found

    if step == 0:
        lines[rank, 2 : 2 + len(told)] = told
    others = [r for r in range(ranks) if r != rank]
    for t in range(step, blocks + 2):
        if t == 1 and (lines[:, 2 : 2 + len(told)] != told).any():
            return -1
        if t >= 2:
            for r in others:
                here, there = pieces(t - 2)[r]
                out[here] = scratch[rank, there]
        if 1 <= t <= blocks:
            here, there = pieces(t - 1)[rank]
            out[here] = x[here]
            sum_into_all([out[here] if r == rank else scratch[r, there] for r in range(ranks)])
        if t < blocks:
            for r in others:
                here, there = pieces(t)[r]
                scratch[rank, there] = x[here]
        store_release(lines[rank], 0, number + t)
        if not all(has_reached(line, 0, number + t, looks) for line in lines):
            return t
    return blocks + 2
