"""Measure what a simulation must know of this machine: each distinct piece of the model once, an update, and a link.

    two ranks, side by side as in a training        piece 0, piece 1 (pieces 2, 3, ... are like it), the last piece
                                                    the update of all weights
                                                    messages back and forth, a short one and a long one

A profile is a JSON file that says what it was measured for: the model, its sizes, examples in a microbatch. Times are
taken to grow with the examples, and shrink with the part of a layer that a rank holds.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from minidist import data
from minidist.autograd import Tensor
from minidist.comm import Communicator
from minidist.errors import UserError
from minidist.launch import launch
from minidist.nn import Module, flatten
from minidist.plan.cluster import Cluster, Link
from minidist.simulate.costs import Costs, operations
from minidist.split.replica import whole_loss
from minidist.trace.clocks import one_way
from minidist.train.setup import as_model_input, build_optimizer, declare_model

SIZES = ("model", "data", "dtype", "optimizer", "hidden", "layers", "width", "heads")
REPEATS = 7
LONG = 1 << 22  # bytes


def measure(options: argparse.Namespace, examples: int) -> dict[str, Any]:
    """Measure on two ranks, for microbatches of so many examples."""
    return launch(on_rank, 2, options, examples)[0]


def on_rank(comm: Communicator, options: argparse.Namespace, examples: int) -> dict[str, Any]:
    """Measure on one of two ranks."""
    dataset = data.load(options.data, options.data_dir)
    model = declare_model(options, dataset, seed=0)
    inputs = as_model_input(dataset.train_inputs[:examples], options.dtype)
    pieces, known = [], {}
    x: Any = inputs
    for number, piece in enumerate(model.pieces()):
        last = number == len(model.pieces()) - 1
        kind = (last, number == 0, *(p.shape for p in piece.parameters()))
        if kind not in known:
            comm.barrier()
            known[kind] = _piece(piece.run, x, dataset.train_labels[:examples] if last else None)
        x = Tensor(piece.run(x).data, requires_grad=True)
        pieces.append([*known[kind], operations(model, number)])
    return {
        "machine": f"{platform.node()}, {platform.machine()}",
        "for": {name: getattr(options, name) for name in SIZES},
        "examples": len(inputs),
        "pieces": pieces,  # seconds forward, seconds backward, operations forward
        "update": _update(model, options),
        "latency": one_way(comm, 8, 200),
        "bandwidth": LONG / one_way(comm, LONG, 10),
    }


def _median(measured: Callable[[], None]) -> float:
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        measured()
        seconds.append(time.perf_counter() - began)
    return median(seconds[2:])  # the first ones warm up


def _piece(run: Callable[[Any], Tensor], x: Any, labels: np.ndarray | None) -> tuple[float, float]:
    """Give the seconds of a piece forward and backward; with labels, of the loss behind it, too."""
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        y = run(x)
        if labels is not None:
            y = whole_loss(y, labels, labels.size)
        there = time.perf_counter()
        y.backward(np.ones(y.shape, y.dtype), release=True)
        seconds.append((there - began, time.perf_counter() - there))
    forward, backward = zip(*seconds[2:], strict=True)
    return median(forward), median(backward)


def _update(model: Module, options: argparse.Namespace) -> float:
    """Give the seconds of an update for each byte of weights."""
    groups = flatten(model)
    optimizer = build_optimizer(options, groups)
    for group in groups:
        if group.gradients is not None:
            group.gradients[...] = 0
    return _median(lambda: (optimizer.step(), None)[1]) / sum(group.weights.nbytes for group in groups)


def load(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Read a profile. Raises UserError if it is none, or was measured for something else."""
    try:
        profile = json.loads(path.read_text(encoding="utf-8"))
        measured = profile["for"]
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
    )


def on_this_machine(cluster: Cluster, profile: dict[str, Any]) -> Cluster:
    """Give a cluster whose machines have the links within that were measured."""
    return replace(cluster, within=Link(profile["latency"], profile["bandwidth"]))
