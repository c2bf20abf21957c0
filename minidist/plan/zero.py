"""What ZeRO sends in a step and what a rank holds, from the sizes alone (`minidist/sync/zero.py`).

    memory(buckets, stage=2, slots=1)                  ->  {"weights": ..., "gradients": ..., "state": ..., ...}
    bytes_per_step(buckets, stage=3, fetches=[1, 2])   ->  {"gradient": Traffic(...), "weights": ..., "control": ...}

How often stage 3 fetches a bucket depends on the order in which a rank reads weights: a bucket is fetched when another
one was read last. `piece_reads` finds what each piece of a model reads, by running it once on one process; a schedule
says in which order pieces run, forward and backward; and `fetches` counts:

    reads = piece_reads(model, one_example)
    fetches(order(schedules.one_f_one_b(2, rank, microbatches=4), [reads[run]], bucket_of), len(buckets))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidist.autograd import Parameter, Tensor
from minidist.nn.module import Module
from minidist.plan.traffic import Traffic, all_gather, even, reduce_scatter
from minidist.split import schedules

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


@dataclass(frozen=True)
class PieceReads:
    """The names of the parameters that one piece of a model reads, in order: in forward, and in its backward."""

    forward: tuple[str, ...]
    backward: tuple[str, ...]


class _Names:
    """Write down, as the watch of all parameters of a model, whose weights are read."""

    def __init__(self, model: Module) -> None:
        self.names = {parameter: name for name, parameter in model.named_parameters()}
        self.read: list[str] = []
        for parameter in self.names:
            parameter.watch = self

    def weights_needed(self, parameter: Parameter) -> None:
        self.read.append(self.names[parameter])

    def weights_done(self, parameter: Parameter) -> None: ...

    def take(self) -> tuple[str, ...]:
        taken, self.read = tuple(self.read), []
        return taken


def piece_reads(model: Module, inputs: np.ndarray) -> list[PieceReads]:
    """Let one process run a model's pieces, forward and backward, on these inputs: one example is enough.

    The model may be declared only: nobody looks at the numbers. Its gradients are cleared, and it is watched no more.
    """
    told, reads = _Names(model), []
    x: Any = inputs
    for piece in model.pieces():
        x = Tensor(x.data, requires_grad=True) if isinstance(x, Tensor) else x
        with np.errstate(all="ignore"):
            y = piece.run(x)
            forward = told.take()
            if y.requires_grad:
                y.backward(np.ones_like(y.data))
        reads.append(PieceReads(forward, told.take()))
        x = y
        for parameter in piece.parameters():
            parameter.zero_grad()
    for parameter in told.names:
        parameter.watch = None
    return reads


def order(
    program: Iterable[Any],
    chunks: Sequence[Sequence[PieceReads]],
    bucket_of: Mapping[str, int],
    recompute: bool = False,
    before_loss: int | None = None,
) -> list[int]:
    """Give the buckets that a rank reads, one after another, when it carries out a program (`split/schedules.py`).

    chunks: the pieces of each of this rank's chunks. bucket_of: the index of each parameter's bucket; names that are
    not in it are of frozen parameters, and always here. before_loss: this rank's chunk behind which comes the loss, if
    it has it: where activations are recomputed, that chunk runs forward only when its backward is due.
    """
    names: list[str] = []
    for instruction in program:
        match instruction:
            case schedules.Forward(_, chunk) if not (recompute and chunk == before_loss):
                names += [name for piece in chunks[chunk] for name in piece.forward]
            case schedules.Backward(_, chunk) | schedules.BackwardInput(_, chunk):
                if recompute:
                    names += [name for piece in chunks[chunk] for name in piece.forward]
                names += [name for piece in reversed(chunks[chunk]) for name in piece.backward]
    return [bucket_of[name] for name in names if name in bucket_of]


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
