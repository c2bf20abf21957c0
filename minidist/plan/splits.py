"""What each rank sends in a step because a model is spread over ranks: activations and their gradients.

    pipe      each border between stages, for each microbatch: its outputs forward, their gradients back
    tensor    where values enter split layers, where they leave them, and what a loss over split classes needs

Everything is proportional to examples, so a step's number of examples, and how they are cut, is all that must be known.
The rules are those of `minidist/split/`; the sizes are read off a model, of which this rank may hold a part only.
Read next: `syncs.py`, for the other question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minidist.comm import Communicator
from minidist.models import CNN, GPT, MLP
from minidist.nn import Module
from minidist.plan import traffic
from minidist.plan.sent import Sent, all_reduced
from minidist.plan.traffic import Traffic, even
from minidist.split.tensor_layers import ColumnParallel, RowParallel, StreamInPieces


def in_pieces(model: Module) -> bool:
    """Say whether the values between split layers are cut along time (sequence parallelism)."""
    return isinstance(model, GPT) and isinstance(getattr(model.norm, "stream", None), StreamInPieces)


def numbers_after(model: Module, piece: int) -> int:
    """Count, per example, the numbers that this rank has of what a piece of the model gives to the next one."""
    if isinstance(model, MLP):
        return model.layers[piece].bias.size
    if isinstance(model, CNN):
        pooled = model.head.weight.shape[0]  # channels * (height / 2) * (width / 2)
        first, second = model.first.weight.shape[0], model.second.weight.shape[0]  # channels
        return pooled if piece else 4 * pooled // second * first
    assert isinstance(model, GPT)
    stream = getattr(model.norm, "stream", None)
    time = len(stream.share(model.time)) if isinstance(stream, StreamInPieces) else model.time
    return time * model.norm.gain.size


def pipeline(
    comm: Communicator, borders: Sequence[int], chunks: int, sizes: Sequence[int], itemsize: int
) -> list[Sent]:
    """Say what a stage sends for microbatches of so many examples.

    borders: numbers per example that pass from each virtual stage to the next one.
    """
    forward = backward = Traffic()
    for stage in range(comm.rank, comm.size * chunks, comm.size):  # virtual stages
        for examples in sizes:
            if stage < comm.size * chunks - 1:
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
    pieces: bool,
    itemsize: int,
    again: bool,
) -> Traffic:
    """Say what the split layers of a model send for `rows` sequences of `time` positions (an mlp: of one).

    layers: "enter" or "leave", and the width of what goes there. again: forward runs twice (recomputation).
    """
    shares = [rows * share * itemsize for share in even(time, comm.size)]  # bytes, for each unit of width
    total = Traffic()
    for how, width in layers:
        if pieces:
            gathered = traffic.all_gather([share * width for share in shares], comm.rank)
            summed = traffic.reduce_scatter([share * width for share in shares], comm.rank)
        else:
            gathered, summed = Traffic(), all_reduced(comm, rows * time * width, itemsize)
        forward, backward = (gathered, summed) if how == "enter" else (summed, gathered)
        total += forward * (1 + again) + backward
    return total


def split_layers(model: Module, pieces: range) -> list[tuple[str, int]]:
    """List where the values of these pieces enter split layers, and where they leave them."""
    found = []
    if isinstance(model, MLP):
        for number in pieces:
            layer = model.layers[number]
            if isinstance(layer, RowParallel):
                found.append(("leave", layer.bias.size))
            elif isinstance(layer, ColumnParallel) and number:  # nobody asks for the gradient of the images
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


def classes_are_split(model: Module) -> bool:
    """Say whether each tensor rank has some columns of the logits."""
    return isinstance(model, GPT) or (isinstance(model, MLP) and isinstance(model.layers[-1], ColumnParallel))


def split_loss(comm: Communicator, targets: int, itemsize: int) -> Traffic:
    """Say what the cross entropy over split classes sends: the largest logit, then two sums, of each target."""
    return all_reduced(comm, targets, itemsize) + all_reduced(comm, 2 * targets, itemsize)
