"""Measure what a simulation must know of this machine: each piece of the model, an update, a sum, and a link.

    two ranks, each with its own examples      begin | piece 0 | piece 1 | ... | piece 1 | piece 0 | sum | update
                                                       forward                   backward
    the same, again and again                  then messages back and forth, a short one and a long one

Pieces are measured in a whole step and beside another rank that does the same, for that is where they run: what a
piece needs was last used a step ago and may have left the cache, memory for what it makes has to be found beside all
the rest, two ranks share the way to memory, and gradients lie where the other rank writes, too. A piece that is run by
itself, over and over, takes less: a tenth of the gpt's. Pieces of the same shapes have the same times.

A profile is a JSON file that says what it was measured for: the model, its sizes, examples in a microbatch. Times are
taken to grow with the examples, and shrink with the part of a layer that a rank holds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minidist import data
from minidist.autograd import Tensor
from minidist.comm import Communicator, NotShared
from minidist.data import Dataset
from minidist.errors import UserError
from minidist.launch import launch
from minidist.nn import Group, Module, flatten
from minidist.optim import Optimizer
from minidist.plan.cluster import Cluster, Link
from minidist.plan.operations import operations
from minidist.simulate.costs import Costs
from minidist.split.replica import whole_loss
from minidist.trace.clocks import one_way
from minidist.train.setup import as_model_input, build_optimizer, declare_model

SIZES = ("model", "data", "dtype", "optimizer", "hidden", "layers", "width", "heads")
LEAST, MOST, SECONDS = 3, 16, 5.0  # steps, and how long they may take before they are few
LONG = 1 << 22  # bytes


def measure(options: argparse.Namespace, examples: int) -> dict[str, Any]:
    """Measure on two ranks, for microbatches of so many examples."""
    return launch(on_rank, 2, options, examples)[0]


def on_rank(comm: Communicator, options: argparse.Namespace, examples: int) -> dict[str, Any]:
    """Measure on one of two ranks."""
    dataset = data.load(options.data, options.data_dir)
    model = declare_model(options, dataset, seed=0)
    groups = flatten(model)
    with contextlib.suppress(NotShared):
        for group in groups:
            group.move_gradients(comm.allocate_shared)
    optimizer = build_optimizer(options, groups)
    steps: list[list[float]] = []
    count = LEAST
    while len(steps) < count:
        rows = (np.arange(examples) + (comm.size * len(steps) + comm.rank) * examples) % len(
            dataset.train_inputs
        )
        steps.append(_step(comm, options, dataset, rows, model, groups, optimizer))
        if len(steps) == 1:
            took = float(comm.all_reduce(np.array(sum(steps[0])), op="max"))
            count = max(LEAST, min(MOST, int(SECONDS / took)))
    # The first steps warm up. Ranks wait for each other in every step: what both take on average counts.
    own = np.median(steps[1 + count // 5 :], axis=0)
    begin, update, total, *times = (comm.all_reduce(own) / comm.size).tolist()
    numbers = sum(group.weights.nbytes for group in groups)
    return {
        "machine": f"{platform.node()}, {platform.machine()}",
        "for": {name: getattr(options, name) for name in SIZES},
        "examples": examples,
        "pieces": _alike(model, times),  # seconds forward, seconds backward, operations forward
        "begin": begin,
        "update": update / numbers,
        "sum": numbers / total,
        "latency": one_way(comm, 8, 200),
        "bandwidth": LONG / one_way(comm, LONG, 10),
    }


def _step(
    comm: Communicator,
    options: argparse.Namespace,
    dataset: Dataset,
    rows: np.ndarray,
    model: Module,
    groups: list[Group],
    optimizer: Optimizer,
) -> list[float]:
    """Take a step, and give the seconds of its beginning, update, sum, of each piece forward, and of each backward."""
    clock = time.perf_counter
    pieces, borders, outputs = model.pieces(), [], []
    comm.barrier()
    times = [clock()]
    x: Any = as_model_input(dataset.train_inputs[rows], options.dtype)
    labels = dataset.train_labels[rows]
    for parameter in model.parameters():
        parameter.zero_grad()
    times.append(clock())
    for piece in pieces:
        borders.append(x)
        y = piece.run(x)
        if piece is pieces[-1]:
            y = whole_loss(y, labels, comm.size * labels.size)
        outputs.append(y)
        x = Tensor(y.data, requires_grad=True)  # as where a stage of a pipeline ends
        times.append(clock())
    grad: Any = np.ones((), x.dtype)
    while outputs:
        outputs.pop().backward(grad, release=True, tick=comm.progress.advance)
        x = borders.pop()
        grad = x.grad if isinstance(x, Tensor) else grad
        times.append(clock())
    comm.barrier()
    times.append(clock())
    for group in groups:
        comm.all_reduce(group.gradients, out=group.gradients)
    times.append(clock())
    optimizer.step()
    times.append(clock())
    begin, *compute, _, total, update = np.diff(times).tolist()
    forward, backward = compute[: len(pieces)], compute[: len(pieces) - 1 : -1]
    return [begin, update, total, *forward, *backward]


def _alike(model: Module, times: list[float]) -> list[list[float]]:
    """Give (forward, backward, operations) of each piece; those of pieces of the same shapes are averaged."""
    count = len(times) // 2
    kinds: dict[Any, list[list[float]]] = {}
    rows = []
    for number, piece in enumerate(model.pieces()):
        inner = 0 < number < count - 1
        kind = "inner" if inner else number, tuple(p.shape for p in piece.parameters())
        rows.append(kinds.setdefault(kind, []))
        rows[-1].append([times[number], times[count + number], operations(model, number)])
    return [np.mean(row, axis=0).tolist() for row in rows]


def load(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Read a profile. Raises UserError if it is none, or was measured for something else."""
    try:
        profile = json.loads(path.read_text(encoding="utf-8"))
        measured, _ = profile["for"], profile["begin"]  # which those of former versions do not have
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a profile: give a file that --profile has written") from error
    for name, value in measured.items():
        if getattr(options, name) != value:
            raise UserError(
                f"{path} was measured with --{name} {value}, and this is {getattr(options, name)}: "
                "measure again under another file name"
            )
    return profile


def profiled(profile: dict[str, Any]) -> Costs:
    """Take times from a profile."""

    def share(model: Module, piece: int, examples: int) -> float:
        whole = profile["pieces"][piece][2]
        return examples / profile["examples"] * (operations(model, piece) / whole if whole else 1)

    return Costs(
        lambda model, piece, examples: profile["pieces"][piece][0] * share(model, piece, examples),
        lambda model, piece, examples: profile["pieces"][piece][1] * share(model, piece, examples),
        lambda nbytes, slots: profile["update"] * nbytes,
        profile["begin"],
    )


def on_this_machine(cluster: Cluster, profile: dict[str, Any]) -> Cluster:
    """Give a cluster whose machines have the links within that were measured."""
    return replace(cluster, within=Link(profile["latency"], profile["bandwidth"]), summing=profile["sum"])
