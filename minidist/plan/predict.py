"""What every rank will send in one training step, before there is one: by axis and purpose, from sizes alone.

    rank 1 of data=2,pipe=2                            messages       bytes
    pipe    activation   4 gradients to stage 0               4     524,288
    data    gradient     12 buckets, summed                  12   1,586,176
    all     control      the loss                             2          16

Each part of the program has its list: the split sends activations, the sync gradients and weights, the loop the loss.
A line comes from the part's own rules, applied to sizes, never from a counter. So where the counters of a run differ,
the program does something else than its description says; a test compares the two in every mode.

Read next: `memory.py`, which does the same for what a rank holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minidist.comm import Communicator, Mesh
from minidist.models import CNN, GPT, MLP
from minidist.nn import Group, Module
from minidist.nn.flat import Bucket
from minidist.plan import traffic
from minidist.plan.traffic import Traffic, even
from minidist.split.tensor_layers import ColumnParallel, RowParallel, StreamInPieces


@dataclass(frozen=True)
class Sent:
    """One line: what a rank sends along some axes for one purpose in a step."""

    axes: str
    purpose: str
    what: str
    traffic: Traffic


def all_reduced(comm: Communicator, n: int, itemsize: int, algorithm: str | None = None) -> Traffic:
    """Say what this rank sends in an all-reduce of n numbers."""
    return traffic.all_reduce(n, itemsize, comm.rank, comm.size, algorithm)


# ---- the split: activations


def numbers_after(model: Module, piece: int) -> int:
    """Count, per example, the numbers that this rank has of what a piece of the model gives to the next one."""
    if isinstance(model, MLP):
        return model.layers[piece].bias.size
    if isinstance(model, CNN):
        second = model.head.weight.shape[0]  # channels * (height / 2) * (width / 2)
        return second if piece else 4 * second // model.second.weight.shape[0] * model.first.weight.shape[0]
    assert isinstance(model, GPT)
    return stream_time(model) * model.norm.gain.size


def stream_time(gpt: GPT) -> int:
    """Count the positions that this rank has between two split layers."""
    stream = getattr(gpt.norm, "stream", None)
    return len(stream.share(gpt.time)) if isinstance(stream, StreamInPieces) else gpt.time


def pipeline(
    comm: Communicator, borders: Sequence[int], chunks: int, sizes: Sequence[int], itemsize: int
) -> list[Sent]:
    """Say what a stage sends for microbatches of so many examples.

    borders: numbers per example that pass from each virtual stage to the next one.
    """
    last = comm.size * chunks - 1
    forward = backward = Traffic()
    for chunk in range(chunks if comm.size > 1 else 0):
        stage = chunk * comm.size + comm.rank
        for examples in sizes:
            if stage < last:
                forward += Traffic(1, borders[stage] * examples * itemsize)
            if stage > 0:
                backward += Traffic(1, borders[stage - 1] * examples * itemsize)
    return [
        Sent("pipe", "activation", "outputs to the next stage", forward),
        Sent("pipe", "activation", "gradients to the stage before", backward),
    ]


def tensor(
    comm: Communicator,
    layers: Iterable[tuple[str, int]],
    rows: int,
    time: int,
    in_pieces: bool,
    itemsize: int,
    again: bool,
) -> Traffic:
    """Say what the split layers of a model send for `rows` sequences of `time` positions (an mlp: of one).

    layers: "enter" or "leave", and the width of what goes there. again: forward runs twice (recomputation).
    """
    total = Traffic()
    for how, width in layers:
        n = rows * time * width
        pieces = [rows * share * width * itemsize for share in even(time, comm.size)]
        gathered = traffic.all_gather(pieces, comm.rank) if in_pieces else Traffic()
        if in_pieces:
            summed = traffic.reduce_scatter(pieces, comm.rank)
        else:
            summed = all_reduced(comm, n, itemsize)
        forward, backward = (gathered, summed) if how == "enter" else (summed, gathered)
        total += forward * (1 + again) + backward
    return total


def split_layers(model: Module, pieces: range, first_needs_gradient: bool) -> list[tuple[str, int]]:
    """List where the values of these pieces enter split layers, and where they leave them."""
    found = []
    if isinstance(model, MLP):
        for number in pieces:
            layer = model.layers[number]
            if isinstance(layer, RowParallel):
                found.append(("leave", layer.bias.size))
            elif isinstance(layer, ColumnParallel) and (number or first_needs_gradient):
                found.append(("enter", layer.weight.shape[0]))
    elif isinstance(model, GPT):
        width = model.norm.gain.size
        for number in pieces:
            if number == 0:
                found.append(("leave", width))
            elif number <= len(model.blocks):
                found += [("enter", width), ("leave", width)] * 2
            else:
                found.append(("enter", width))
    return found


def split_loss(comm: Communicator, targets: int, itemsize: int) -> Traffic:
    """Say what the cross entropy over split classes sends: the largest logit, then two sums, of each target."""
    return all_reduced(comm, targets, itemsize) + all_reduced(comm, 2 * targets, itemsize)


# ---- the sync: gradients and weights


def summed_gradients(mesh: Mesh, buckets: Sequence[Bucket], shared: bool) -> list[Sent]:
    """Say what data parallel sends: each bucket once, over all axes over which it is a partial sum."""
    found: dict[tuple[str, ...], list[Traffic]] = {}
    for bucket in buckets:
        comm = mesh.comm(*bucket.group.axes)
        way = "shared" if shared else None
        one = all_reduced(comm, bucket.gradients.size, bucket.group.dtype.itemsize, way)
        found.setdefault(bucket.group.axes, []).append(one)
    return [
        Sent(
            "+".join(axes),
            "gradient",
            f"{len(parts)} bucket{'s' * (len(parts) > 1)}, summed",
            traffic.total(parts),
        )
        for axes, parts in found.items()
    ]


def completed(mesh: Mesh, groups: Sequence[Group]) -> list[Sent]:
    """Say what it takes to sum, within a replica, the gradients that are partial there (`sync/partial.py`)."""
    found = []
    for group in groups:
        axes = group.axes[1:]
        if axes and group.gradients is not None:
            one = all_reduced(mesh.comm(*axes), group.gradients.size, group.dtype.itemsize)
            found.append(Sent("+".join(axes), "gradient", "partial gradients, summed", one))
    return found


def average(mesh: Mesh, groups: Sequence[Group], vectors: int) -> list[Sent]:
    """Say what one average sends: the weights (and optimizer state: `vectors` in all), and how much each counts."""
    comm = mesh.comm("data")
    weights = [
        all_reduced(comm, group.weights.size, group.dtype.itemsize) * vectors
        for group in groups
        if group.trainable
    ]
    counts = traffic.all_gather([16] * comm.size, comm.rank)
    return [
        Sent("data", "weights", "weights, averaged", traffic.total(weights)),
        Sent("data", "control", "examples behind them", counts),
    ]


def norm(mesh: Mesh) -> list[Sent]:
    """Say what the norm of a gradient takes that is spread over a replica."""
    axes = [axis for axis in mesh.axes if axis != "data"]
    one = all_reduced(mesh.comm(*axes), 1, 8) if axes else Traffic()
    return [Sent("+".join(axes), "control", "the gradient's norm", one)]


def loss(comm: Communicator) -> list[Sent]:
    """Say what it takes to know the global batch's loss everywhere."""
    return [Sent("all", "control", "the loss", all_reduced(comm, 1, 8))]


def by_purpose(lines: Iterable[Sent]) -> dict[str, Traffic]:
    """Add up, as a communicator's counters do."""
    totals: dict[str, Traffic] = {}
    for line in lines:
        totals[line.purpose] = totals.get(line.purpose, Traffic()) + line.traffic
    return {purpose: total for purpose, total in totals.items() if total.messages}
