"""No false alarm: correct steps of many kinds pass, in float32 and float64, whatever the mode.

MINIDIST_CHECK=200 draws a larger sample of the configurations.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from minidist import check
from minidist.autograd import Tensor, ops
from minidist.comm import Communicator, Mesh
from minidist.data import loader
from minidist.models import GPT, MLP
from minidist.nn import LayerNorm, Linear, Module, flatten
from minidist.optim import SGD, AdamW
from minidist.random import uniform
from minidist.split import tensor_parallel
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.split.replica import Batch, whole_loss
from minidist.split.stages import cut
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel
from minidist.sync.model_averaging import ModelAveraging
from minidist.sync.parameter_server import Link, ParameterServer
from minidist.sync.server import Server
from minidist.sync.zero import Zero

IMAGES = uniform(1, "images", 0, 0, 40 * 16).reshape(40, 1, 4, 4)
LABELS = (np.arange(40) * 3) % 5
TOKENS = (uniform(2, "tokens", 0, 0, 40 * 5) * 7).astype(np.int64).reshape(40, 5)


class Odd(Module):
    """Norm, dropout by place, a frozen weight, a branch that some rows use, a layer without use, and one used twice."""

    def __init__(self, dtype: Any) -> None:
        self.first, self.norm, self.twice, self.branch = (
            Linear(16, 9),
            LayerNorm(9),
            Linear(9, 9),
            Linear(16, 9),
        )
        self.last, self.never = Linear(9, 5), Linear(3, 3)
        self.twice.bias.requires_grad = False
        self.place = 0  # of the first row of a share in the global batch
        self.initialize(3, dtype)

    def forward(self, x: np.ndarray) -> Tensor:
        flat = x.reshape(len(x), -1)
        y = self.norm(self.first(Tensor(flat)))
        chosen = flat[:, 0] > 0.85
        if chosen.any():
            y = y + self.branch(Tensor(flat)) * chosen[:, None].astype(flat.dtype)
        y = ops.dropout(self.twice(ops.relu(self.twice(y))), 0.4, 1, "drop", 0, self.place * 9)
        return self.last(y * np.array(1, flat.dtype))


@dataclass(frozen=True)
class Case:
    model: str = "mlp"
    dtype: str = "float64"
    step: str = "sum"  # by hand: sum over the global count, mean weighted, mean of equal shares; or "engine"
    optimizer: str = "sgd"
    clip: float | None = None
    accumulate: int = 1
    axes: tuple[tuple[str, int], ...] = (("data", 1),)
    sync: str = "data"
    schedule: str = "1f1b"
    batch: int = 12

    @property
    def ranks(self) -> int:
        return int(np.prod([size for _, size in self.axes])) + (self.sync == "parameter-server")

    def __str__(self) -> str:
        default = Case()
        return ",".join(
            f"{n}={getattr(self, n)}"
            for n in self.__dataclass_fields__
            if getattr(self, n) != getattr(default, n)
        )


def declared(case: Case, seed: int | None) -> Module:
    dtype = np.dtype(case.dtype)
    if case.model == "gpt":
        return GPT(7, 4, 2, 12, 4, seed=seed, dtype=dtype)
    return Odd(dtype) if case.model == "odd" else MLP([16, 9, 8, 7, 5], seed=seed, dtype=dtype)


def rule(case: Case, groups: Any) -> Any:
    if case.optimizer == "adamw":
        return AdamW(groups, 0.01)
    return SGD(groups, 0.1, momentum=0.9 if case.optimizer == "momentum" else 0.0, weight_decay=0.01)


def build(comm: Communicator, case: Case) -> Any:
    if case.step != "engine":
        model = declared(case, 3)
        if case.step == "plain":  # no flat vectors: parameters on their own
            return model, None
        return model, rule(case, flatten(model))
    link = None
    if case.sync == "parameter-server" and comm.size > 1:
        link = Link(comm, comm.size - 1)
        if link.serves:
            return Server(link, rule(case, []))
        comm = link.peers
    sizes = dict(case.axes) if comm.size > 1 else {axis: 1 for axis, _ in case.axes}
    mesh = Mesh(comm, **sizes)
    model = declared(case, None)
    loss, here = whole_loss, model
    if "tensor" in sizes:
        loss, _ = tensor_parallel.parallelize(model, mesh)
    if "pipe" in sizes:
        here = cut(model, mesh)
    here.initialize(4, np.dtype(case.dtype))
    groups = flatten(here)
    sync: Any
    if link is not None:
        sync = ParameterServer(mesh, groups, rule(case, groups), link, case.clip)
    elif case.sync == "averaging":
        sync = ModelAveraging(mesh, groups, rule(case, groups), every=1, state="average")
    elif case.sync.startswith("zero") and mesh.size("data") > 1:
        stage = int(case.sync[-1])
        sync = Zero(mesh, groups, rule(case, groups), case.clip, bytes_per_bucket=200, stage=stage)
    else:
        sync = DataParallel(mesh, groups, rule(case, groups), case.clip)
    if "pipe" in sizes:
        return mesh, PipelineParallel(here, loss, sync, mesh, case.schedule, 3, case.accumulate), None  # type: ignore[arg-type]
    return mesh, Whole(model, loss, sync, case.accumulate), None


def engine_step(comm: Communicator, state: Any, inputs: np.ndarray, labels: np.ndarray) -> Any:
    if isinstance(state, Server):
        return None  # it serves in a thread of its own
    mesh, replica, _ = state
    mine = loader.share(np.arange(len(inputs)), mesh.coordinates["data"], mesh.size("data"))
    whole = labels.size
    divisor = replica.sync.divisor(labels[mine].size, whole)
    share = replica.forward_backward(Batch(inputs[mine], labels[mine], divisor)) * divisor / whole
    replica.sync.step()
    return mesh.everyone.all_reduce(np.array(share))


def step(comm: Communicator, state: Any, inputs: np.ndarray, labels: np.ndarray, case: Case) -> Any:
    if case.step == "engine":
        return engine_step(comm, state, inputs, labels)
    model, optimizer = state
    n = len(inputs)
    mine = loader.share(np.arange(n), comm.rank, comm.size)
    for parameter in model.parameters():
        parameter.zero_grad()
    total = 0.0
    pieces = [piece for piece in loader.microbatches(mine, case.accumulate) if len(piece)]
    for piece in pieces:
        if case.model == "odd":
            model.place = piece[0]
        count = labels[mine].size if case.step in ("weighted", "plain") else labels.size
        loss = ops.cross_entropy(model(inputs[piece]), labels[piece], count)
        loss.backward()
        total += loss.item()
    weight = len(mine) / n if case.step in ("weighted", "plain") else 1.0
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameter in trained:
        grad = parameter.grad if parameter.grad is not None else np.zeros(parameter.shape, parameter.dtype)
        parameter.grad = comm.all_reduce(grad * np.array(weight, grad.dtype))
    if case.clip is not None:
        norm = np.sqrt(sum(float((p.grad.astype(float) ** 2).sum()) for p in trained))
        for parameter in trained:
            parameter.grad = parameter.grad * np.array(min(1.0, case.clip / norm), parameter.dtype)
    if optimizer is not None:
        optimizer.step()
    else:
        for parameter in trained:
            parameter.data = parameter.data - np.array(0.1, parameter.dtype) * parameter.grad
    if case.accumulate == 2:
        for parameter in model.parameters():
            parameter.zero_grad()  # at the end of the step is as good
    return {"global": float(comm.all_reduce(np.array(total * weight))), "own": total}


AXES: tuple[dict[str, int], ...] = (
    {"data": 2}, {"data": 3}, {"data": 4}, {"data": 1, "pipe": 2}, {"data": 1, "pipe": 4}, {"data": 1, "tensor": 2},
    {"data": 1, "tensor": 4}, {"data": 2, "pipe": 2}, {"data": 2, "tensor": 2},
    {"data": 1, "pipe": 2, "tensor": 2},
)  # fmt: skip


def cases(count: int) -> Iterator[Case]:
    draw = random.Random(5)
    seen: set[Case] = set()
    while len(seen) < count:
        case = Case(
            model=draw.choice(["mlp", "gpt", "odd"]),
            dtype=draw.choice(["float64", "float32"]),
            step=draw.choice(["sum", "weighted", "plain", "engine", "engine", "engine"]),
            optimizer=draw.choice(["sgd", "momentum", "adamw"]),
            clip=draw.choice([None, None, 0.3]),
            accumulate=draw.choice([1, 1, 2, 3]),
            batch=draw.choice([12, 12, 8, 5, 3]),
        )
        if case.step == "engine":
            axes = draw.choice(AXES)
            case = replace(
                case,
                axes=tuple(axes.items()),
                schedule=draw.choice(["naive", "gpipe", "1f1b", "zero-bubble"]),
            )
            if case.model == "odd":
                case = replace(case, model="mlp")
            case = replace(case, sync=draw.choice(["data", "zero1", "zero2", "zero3", "averaging"]))
            if case.sync == "averaging" and (case.clip is not None or case.optimizer == "adamw"):
                case = replace(case, sync="data")
        else:
            case = replace(case, axes=(("data", draw.choice([2, 3, 4])),))
            if case.model == "odd":
                case = replace(case, accumulate=1)
        if case.batch <= case.ranks and case.step in ("weighted", "plain"):
            case = replace(case, batch=12)  # a mean over no rows is not a number
        if case not in seen:
            seen.add(case)
            yield case


SAMPLE = list(cases(int(os.environ.get("MINIDIST_CHECK", "16"))))


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_a_correct_step_passes(case: Case) -> None:
    inputs, labels = (
        (TOKENS[:, :-1], TOKENS[:, 1:]) if case.model == "gpt" else (IMAGES.astype(case.dtype), LABELS)
    )
    report = check.run(
        lambda comm: build(comm, case),
        lambda *given: step(*given, case),
        (inputs, labels),
        (case.ranks,),
        batch=case.batch,
    )
    assert report.ok, report.text
