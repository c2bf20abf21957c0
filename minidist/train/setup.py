"""From the options to the two objects that train: a replica (where the model lives) and a sync (how copies agree).

    declare -> cut the layers (tensor) -> deal them out (pipe) -> draw what is here -> flatten -> sync -> replica

The model is declared first, without memory, so that a rank never holds more of it than its own part. Everything that
follows does not care where the parts are. Read next: the mode you are after, in `minidist/split/` or `minidist/sync/`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidist import data
from minidist.comm import Communicator, Mesh
from minidist.data import Dataset, Outline
from minidist.errors import UserError
from minidist.models import CNN, GPT, MLP
from minidist.nn import Group, Module, flatten
from minidist.nn.flat import nowhere
from minidist.optim import SGD, AdamW, Optimizer, Vectors
from minidist.split import stages, tensor_parallel
from minidist.split.pipedream import PipeDream
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.split.replica import Argmax, Loss, Replica, whole_argmax, whole_loss
from minidist.split.stages import cut, measured_costs
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel
from minidist.sync.model_averaging import ModelAveraging, OuterNesterov
from minidist.sync.parameter_server import Link, ParameterServer
from minidist.sync.seam import Sync
from minidist.sync.zero import Zero
from minidist.train.arrangement import Arrangement


@dataclass(frozen=True)
class Setup:
    """What a worker trains with."""

    mesh: Mesh
    model: Module  # the whole of it, declared; only this rank's parameters have values
    groups: list[Group]
    sync: Sync
    replica: Replica


def set_up(
    options: argparse.Namespace,
    dataset: Dataset,
    comm: Communicator,
    arrangement: Arrangement,
    link: Link | None,
    draw: bool = True,
) -> Setup:
    """Build it on every worker (comm: of the workers). Raises UserError where the model does not fit.

    draw: give the weights their numbers; False: only their shapes and places matter (`minidist/simulate/`).
    """
    mesh = Mesh(comm, **arrangement.axes)
    model = declare_model(options, dataset)
    loss: Loss = whole_loss
    argmax: Argmax = whole_argmax
    if "tensor" in mesh.axes:
        loss, argmax = tensor_parallel.parallelize(model, mesh, options.sequence_parallel)
    here: Module = model
    if "pipe" in mesh.axes:
        costs = None
        if options.balance == "measured":
            sample = as_model_input(
                dataset.train_inputs[: max(1, options.batch // options.microbatches)], options.dtype
            )
            costs = measured_costs(model, mesh, sample, options.dtype)
        here = stage = cut(model, mesh, options.chunks, costs)
    if draw:
        here.initialize(options.seed, np.dtype(options.dtype))
        groups = flatten(here)
    else:
        for parameter in here.parameters():
            parameter.bind(nowhere(parameter.shape, np.dtype(options.dtype)))
        groups = flatten(here, filled=False)
    sync = build_sync(options, mesh, groups, arrangement, link)
    replica: Replica
    if "pipe" in mesh.axes and options.schedule == "pipedream":
        assert isinstance(sync, DataParallel)
        replica = PipeDream(stage, loss, sync, mesh, options.microbatches, argmax=argmax)
    elif "pipe" in mesh.axes:
        schedule = "1f1b" if options.schedule == "interleaved" else options.schedule  # by several chunks
        pieces, again = options.microbatches, options.recompute
        replica = PipelineParallel(
            stage, loss, sync, mesh, schedule, pieces, options.accumulate, again, argmax
        )
    else:
        replica = Whole(model, loss, sync, options.accumulate, argmax)
    return Setup(mesh, model, groups, sync, replica)


def check_fits(options: argparse.Namespace, arrangement: Arrangement) -> None:
    """Refuse a model that cannot be spread over this mesh, before anything is loaded. Talks to nobody."""
    if options.model == "gpt" and options.width % options.heads:
        raise UserError(
            f"--width {options.width} cannot be shared by {options.heads} heads; take a multiple of {options.heads}"
        )
    model = declare_model(options, data.outline(options.data))
    if "tensor" in arrangement.axes:
        tensor_parallel.check_fits(model, arrangement.axes, options.sequence_parallel)
    if "pipe" in arrangement.axes:
        stages.check_fits(model, arrangement.axes, options.chunks)


def declare_model(options: argparse.Namespace, dataset: Dataset | Outline, seed: int | None = None) -> Module:
    """Declare the model that fits the data; with a seed, draw its weights too."""
    how: dict[str, Any] = {"seed": seed, "dtype": np.dtype(options.dtype)}
    if options.model == "gpt":
        sizes = {"layers": options.layers, "width": options.width, "heads": options.heads}
        return GPT(dataset.classes, time=dataset.input_shape[0], **sizes, **how)
    depth, height, width = dataset.input_shape
    if options.model == "cnn":
        return CNN((depth, height, width), dataset.classes, **how)
    return MLP([depth * height * width, *options.hidden, dataset.classes], **how)


def build_optimizer(options: argparse.Namespace, groups: Sequence[Vectors]) -> Optimizer:
    """Make the update rule that the options name."""
    if options.optimizer == "sgd":
        return SGD(groups, options.lr, options.momentum, options.weight_decay)
    return AdamW(groups, options.lr, weight_decay=options.weight_decay)


def build_sync(
    options: argparse.Namespace, mesh: Mesh, groups: list[Group], arrangement: Arrangement, link: Link | None
) -> Sync:
    """Make the sync that the options name."""
    optimizer, clip = build_optimizer(options, groups), options.clip_norm
    if arrangement.sync == "averaging":
        outer = (
            OuterNesterov(options.outer_lr, options.outer_momentum) if options.outer == "nesterov" else None
        )
        every, growth = options.average_every, options.average_growth
        return ModelAveraging(
            mesh, groups, optimizer, clip, every, options.warm_up, growth, options.average_state, outer
        )
    if arrangement.sync == "parameter-server":
        assert link is not None
        slack = None if options.slack == "none" else options.slack
        return ParameterServer(mesh, groups, optimizer, link, clip, slack)
    if options.zero:
        return Zero(mesh, groups, optimizer, clip, stage=options.zero)
    return DataParallel(mesh, groups, optimizer, clip)


def as_model_input(inputs: np.ndarray, dtype: str) -> np.ndarray:
    """Give images the model's dtype; tokens stay integers."""
    return inputs if inputs.dtype.kind == "i" else inputs.astype(dtype, copy=False)
