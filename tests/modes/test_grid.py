"""Any mix of modes equals one process: losses, gradient norms and gathered weights after 20 steps in float64.

The grid (mesh x schedule x microbatches x accumulation x ragged batch x tied x frozen x clip x sync) has tens of
thousands of cases, of which a fixed sample is run: on threads, and a few on MPI. MINIDIST_GRID=400 draws a larger one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from minidist.comm import Communicator, Mesh
from minidist.comm.threads import run_ranks
from minidist.data import loader
from minidist.models import GPT, MLP
from minidist.nn import Module, flatten
from minidist.optim import SGD
from minidist.random import uniform
from minidist.split import tensor_parallel
from minidist.split.gather import whole_weights
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.split.replica import Batch, Replica, whole_argmax, whole_loss
from minidist.split.stages import cut
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel
from minidist.sync.model_averaging import ModelAveraging
from minidist.sync.parameter_server import Link, ParameterServer
from minidist.sync.seam import Sync
from minidist.sync.server import serve
from minidist.sync.zero import Zero

STEPS = 20
EXAMPLES = 23  # prime, so nothing divides evenly
CLASSES = 7


@dataclass(frozen=True)
class Case:
    """One arrangement of one training."""

    model: str = "mlp"  # mlp, or gpt, whose first and last weights are tied
    frozen: bool = False
    batch: int = 7  # the last batch of an epoch is shorter; 2: some replicas have nothing to do
    clip: float | None = None
    axes: tuple[tuple[str, int], ...] = (("data", 1),)
    accumulate: int = 1
    microbatches: int = 2
    schedule: str = "1f1b"
    chunks: int = 1
    recompute: bool = False
    sequence: bool = False
    zero: int = 0
    sync: str = (
        "data"  # or those forms of the others that equal it: averaging after each step, servers with slack 0
    )
    servers: int = 0

    @property
    def ranks(self) -> int:
        return int(np.prod([size for _, size in self.axes])) + self.servers

    @property
    def training(self) -> Case:
        """What is trained, whoever does it: this in one process is the reference."""
        return Case(self.model, self.frozen, self.batch, self.clip)

    def __str__(self) -> str:
        default = Case()
        said = [f"{axis}={size}" for axis, size in self.axes if size > 1]
        names = [name for name in self.__dataclass_fields__ if name != "axes"]
        said += [
            f"{name}={getattr(self, name)}" for name in names if getattr(self, name) != getattr(default, name)
        ]
        return ",".join(said) or "one"


def declare(case: Case) -> Module:
    model: Module
    if case.model == "gpt":
        model = GPT(CLASSES, time=4, layers=2, width=12, heads=3, seed=None)
        if case.frozen:
            model.blocks[1].widen.weight.requires_grad = False
            model.norm.bias.requires_grad = False
    else:
        model = MLP([16, 9, 8, 6, CLASSES], seed=None)
        if case.frozen:
            model.layers[1].weight.requires_grad = False
            model.layers[3].bias.requires_grad = False
    return model


def data(model: str) -> tuple[np.ndarray, np.ndarray]:
    if model == "gpt":
        text = (uniform(2, "tokens", 0, 0, EXAMPLES * 5) * CLASSES).astype(np.int64).reshape(EXAMPLES, 5)
        return text[:, :-1], text[:, 1:]
    images = uniform(1, "images", 0, 0, EXAMPLES * 16).reshape(EXAMPLES, 1, 4, 4)
    return images, (np.arange(EXAMPLES) * 3) % CLASSES


def train(comm: Communicator, case: Case) -> dict[str, Any] | None:
    """Train as the case says; a server has nothing to show for it."""
    rule = partial(SGD, lr=0.1, momentum=0.9, weight_decay=0.01)
    if case.servers:
        link = Link(comm, case.ranks - case.servers)
        if link.serves:
            return serve(link, rule([]))
        comm = link.peers
    mesh = Mesh(comm, **dict(case.axes))
    model = declare(case)
    loss, argmax = whole_loss, whole_argmax
    if "tensor" in mesh.axes:
        loss, argmax = tensor_parallel.parallelize(model, mesh, case.sequence)
    here = model
    if "pipe" in mesh.axes:
        here = stage = cut(model, mesh, case.chunks)
    here.initialize(4, np.float64)
    groups = flatten(here)
    optimizer = rule(groups)
    sync: Sync
    if case.servers:
        sync = ParameterServer(mesh, groups, optimizer, link, case.clip, bytes_per_bucket=200)
    elif case.sync == "averaging":
        sync = ModelAveraging(mesh, groups, optimizer, every=1, state="average")
    elif case.zero:
        sync = Zero(mesh, groups, optimizer, case.clip, bytes_per_bucket=200, stage=case.zero)
    else:
        sync = DataParallel(mesh, groups, optimizer, case.clip, bytes_per_bucket=200)
    replica: Replica
    if "pipe" in mesh.axes:
        replica = PipelineParallel(
            stage, loss, sync, mesh, case.schedule, case.microbatches, case.accumulate, case.recompute, argmax
        )
    else:
        replica = Whole(model, loss, sync, case.accumulate, argmax)
    inputs, labels = data(case.model)
    losses, norms = [], []
    which, replicas = mesh.coordinates["data"], mesh.size("data")
    for epoch in range(STEPS):
        for rows, count in loader.read(EXAMPLES, case.batch, 0, epoch, which, replicas):
            if len(losses) == STEPS:
                break
            whole = count * labels[0].size
            divisor = sync.divisor(len(rows) * labels[0].size, whole)
            share = replica.forward_backward(Batch(inputs[rows], labels[rows], divisor))
            losses.append(float(comm.all_reduce(np.array(share * divisor / whole))))
            norms.append(sync.step())
    sync.finish()
    return {"losses": losses, "norms": norms, "weights": whole_weights(mesh, groups)}


REFERENCES: dict[Case, dict[str, Any]] = {}  # not functools.cache, which could not travel to ranks


def reference(training: Case) -> dict[str, Any]:
    if training not in REFERENCES:
        REFERENCES[training] = run_ranks(lambda comm: train(comm, training), 1)[0]
    return REFERENCES[training]


def assert_equals_one_process(many: dict[str, Any] | None, case: Case) -> None:
    if many is None:
        return  # a server
    one = reference(case.training)
    histories = ["losses"] if case.sync == "averaging" else ["losses", "norms"]  # there each has its own norm
    for history in histories:
        np.testing.assert_allclose(
            many[history], one[history], rtol=1e-12, atol=0, err_msg=f"{history}, {case}"
        )
    if many["weights"] is None:
        return  # another rank of the replica has gathered them
    assert many["weights"].keys() == one["weights"].keys()
    for name, expected in one["weights"].items():
        distance = abs(many["weights"][name] - expected).max()
        assert distance <= 1e-12 * abs(expected).max(), f"{name} is off by {distance:.3g}, {case}"


MESHES = (
    {"data": 1}, {"data": 2}, {"data": 3}, {"data": 4},
    {"data": 1, "pipe": 2}, {"data": 1, "pipe": 3}, {"data": 1, "pipe": 4},
    {"data": 1, "tensor": 2}, {"data": 1, "tensor": 3},
    {"data": 2, "pipe": 2}, {"data": 2, "tensor": 2}, {"data": 1, "pipe": 2, "tensor": 2},
    {"data": 3, "pipe": 2}, {"data": 2, "tensor": 3},
    {"data": 2, "pipe": 2, "tensor": 2},
)  # fmt: skip


def cases(count: int, seed: int = 0) -> Iterator[Case]:
    """Draw so many different cases from the whole grid."""
    draw = random.Random(seed)
    seen: set[Case] = set()
    while len(seen) < count:
        axes = draw.choice(MESHES)
        case = Case(
            model=draw.choice(["mlp", "gpt"]),
            frozen=draw.random() < 0.3,
            batch=draw.choice([2, 5, 7, EXAMPLES]),
            clip=draw.choice([None, None, 0.3]),
            axes=tuple(axes.items()),
            accumulate=draw.choice([1, 1, 2, 3]),
        )
        if "pipe" in axes:
            schedule = draw.choice(["naive", "gpipe", "1f1b", "1f1b", "zero-bubble"])
            chunks = draw.choice([1, 2]) if schedule == "1f1b" and axes["pipe"] == 2 else 1
            case = replace(
                case,
                microbatches=draw.choice([1, 2, 3, 5]),
                schedule=schedule,
                chunks=chunks,
                recompute=draw.random() < 0.3,
            )
        if "tensor" in axes and case.model == "gpt":
            case = replace(case, sequence=draw.random() < 0.4)
        if axes["data"] > 1:
            case = replace(case, zero=draw.choice([0, 0, 1, 2, 3]))
        other = draw.choice(["data", "data", "averaging", "parameter-server"])
        if other == "parameter-server":
            case = replace(case, zero=0, sync=other, servers=draw.choice([1, 2]))
        elif other == "averaging" and case.clip is None:
            case = replace(case, zero=0, sync=other)
        if case not in seen:
            seen.add(case)
            yield case


SAMPLE = list(cases(int(os.environ.get("MINIDIST_GRID", "32"))))


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_on_threads(case: Case) -> None:
    for result in run_ranks(lambda comm: train(comm, case), case.ranks):
        assert_equals_one_process(result, case)


@pytest.mark.ranks(4, transports=("mpi",))
def test_on_mpi(comm: Communicator) -> None:
    for case in [case for case in SAMPLE if case.ranks == comm.size][:6]:
        assert_equals_one_process(train(comm, case), case)
