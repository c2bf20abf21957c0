"""What ZeRO sends in a step and what a rank holds, from the sizes alone (`minidist/sync/zero.py`).

    memory(buckets, stage=2, slots=1)                  ->  {"weights": ..., "gradients": ..., "state": ..., ...}
    bytes_per_step(buckets, stage=3, fetches=[1, 2])   ->  {"gradient": Traffic(...), "weights": ..., "control": ...}

How often stage 3 fetches a bucket depends on the order in which a rank reads weights: a bucket is fetched when another
one was read last. `Reads` writes that order down while a model runs on one rank, forward and backward apart; a schedule
then says in which order these come, and `fetches` counts. With a pipeline of one microbatch in flight that is forward,
backward, forward, backward; in 1F1B a stage begins with some forwards more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from minidist.nn.flat import Bucket
from minidist.plan.traffic import Traffic, all_gather, even, reduce_scatter

QUESTION = 8  # bytes


@dataclass(frozen=True)
class Shared:
    """A bucket of n numbers of `itemsize` bytes, shared out among the ranks of `axes`; this one is `rank` of `size`."""

    n: int
    itemsize: int
    rank: int
    size: int
    axes: tuple[str, ...] = ("data",)

    @property
    def pieces(self) -> list[int]:
        """The bytes of each rank's piece."""
        return [piece * self.itemsize for piece in even(self.n, self.size)]


class Reads:
    """Write down which buckets are read one after another, while this is the watch of their parameters."""

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self.order: list[int] = []  # indices of buckets; to be taken and cleared between forward and backward
        self._index = {parameter: bucket.index for bucket in buckets for parameter in bucket.parameters}
        for parameter in self._index:
            parameter.watch = self

    def weights_needed(self, parameter: Any) -> None:
        """Write down whose turn it is."""
        self.order.append(self._index[parameter])

    def weights_done(self, parameter: Any) -> None:
        """Nothing to write down."""


def fetches(order: Iterable[int], buckets: int) -> list[int]:
    """Count how often each of so many buckets is fetched in a step that reads them in this order."""
    times, here = [0] * buckets, None
    for index in order:
        times[index] += index != here
        here = index
    return times


def bytes_per_step(
    buckets: Sequence[Shared], stage: int, fetches: Sequence[int] = (), answers: Sequence[int] | None = None
) -> dict[str, Traffic]:
    """Say what this rank sends in a step, by purpose; the norm's one number over the whole mesh comes on top.

    fetches: of each bucket, by this rank. answers: of each, by all others together; None: they fetch as this one does.
    """
    gradient = weights = control = Traffic()
    for bucket in buckets:
        gradient += reduce_scatter(bucket.pieces, bucket.rank)
        if stage < 3:
            weights += all_gather(bucket.pieces, bucket.rank)
    if stage == 3:
        if answers is None:
            answers = [times * (b.size - 1) for times, b in zip(fetches, buckets, strict=True)]
        for bucket, asked, answered in zip(buckets, fetches, answers, strict=True):
            control += Traffic(1, QUESTION) * (asked * (bucket.size - 1))
            weights += Traffic(1, bucket.pieces[bucket.rank]) * answered
        for size in {bucket.axes: bucket.size for bucket in buckets}.values():
            control += Traffic(1, QUESTION) * (size - 1)  # that this rank fetches nothing more
    return {"gradient": gradient, "weights": weights, "control": control}


def memory(buckets: Sequence[Shared], stage: int, slots: int, flying: int = 2) -> dict[str, int]:
    """Say how many bytes this rank holds of the trainable parameters: always, and at most besides.

    slots: vectors of optimizer state. flying: buckets of gradients that are on their way at a time, as in zero.py.
    """
    whole = sum(bucket.n * bucket.itemsize for bucket in buckets)
    own = sum(bucket.pieces[bucket.rank] for bucket in buckets)
    largest = max((bucket.n * bucket.itemsize for bucket in buckets), default=0)
    return {
        "weights": own if stage == 3 else whole,
        "gradients": whole
        if stage == 1
        else own,  # in stages 2 and 3 only from the reduce-scatter to the update
        "state": slots * own,
        "gradients being written": 0
        if stage == 1
        else (flying + 2) * largest,  # two where a layer lies on a border
        "weights being read": largest if stage == 3 else 0,
    }
