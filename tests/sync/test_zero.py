"""ZeRO equals one process in every stage, and a rank holds, and sends, what the formulas say."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minidist.comm import Communicator, Mesh, world
from minidist.data import loader
from minidist.models import GPT, MLP
from minidist.nn import Module, Placement, Weight, flatten
from minidist.optim import SGD
from minidist.split.gather import whole_weights
from minidist.split.pipeline_parallel import PipelineParallel, cut
from minidist.split.replica import Batch, Replica, whole_loss
from minidist.split.tensor_parallel import parallelize
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel
from minidist.sync.zero import Zero
from minidist.testing.small import CLASSES, EXAMPLES, Frozen, SometimesUnused, Tied, images, labels_of, tokens

STEPS = 20


MODELS: dict[str, tuple[Callable[[], Module], Callable[[], np.ndarray]]] = {
    "mlp": (lambda: MLP([16, 8, 7, CLASSES], dtype=np.float64), images),
    "gpt": (lambda: GPT(CLASSES, time=4, layers=1, width=8, heads=2, dtype=np.float64), tokens),
    "tied": (Tied, tokens),
    "frozen": (Frozen, images),
    "sometimes unused": (SometimesUnused, images),
}


def build(
    comm: Communicator, name: str, stage: int, clip: float | None, bucket: int, accumulate: int
) -> tuple[Module, Zero, Whole]:
    model = MODELS[name][0]()
    if comm.rank:  # replicas that were built differently must be made equal
        for parameter in model.parameters():
            parameter.data = parameter.data + comm.rank
    groups = flatten(model)
    optimizer = SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01)
    sync = Zero(Mesh(comm, data=comm.size), groups, optimizer, clip, bucket, stage)
    return model, sync, Whole(model, whole_loss, sync, accumulate)


def train(
    comm: Communicator,
    name: str,
    stage: int = 1,
    batch: int = 7,
    accumulate: int = 1,
    clip: float | None = None,
    bucket: int = 200,
    look: bool = False,
) -> dict[str, Any]:
    model, sync, replica = build(comm, name, stage, clip, bucket, accumulate)
    inputs = MODELS[name][1]()
    labels = labels_of(name, inputs)
    losses, norms = [], []
    for epoch in range(STEPS):
        for rows, count in loader.read(EXAMPLES, batch, 0, epoch, comm.rank, comm.size):
            if len(losses) == STEPS:
                break
            loss = replica.forward_backward(Batch(inputs[rows], labels[rows], count * labels[0].size))
            losses.append(float(comm.all_reduce(np.array(loss))))
            norms.append(sync.step())
            if look and comm.rank == len(losses) % comm.size:  # one rank alone looks at the model
                replica.predict(inputs[:2])
            if look and len(losses) == 9:  # all weights are here, and training goes on
                sync.finish()
                replica.predict(inputs[:2])
    sync.finish()
    return {
        "losses": np.array(losses),
        "norms": np.array(norms),
        "weights": [p.data.copy() for p in model.parameters()],
    }


def assert_equal(many: dict[str, Any], one: dict[str, Any]) -> None:
    for history in ("losses", "norms"):
        np.testing.assert_allclose(many[history], one[history], rtol=1e-12, atol=0)
    largest = max(abs(b).max() for b in one["weights"])
    for a, b in zip(many["weights"], one["weights"], strict=True):
        assert abs(a - b).max() <= 1e-12 * largest


CASES: tuple[dict[str, Any], ...] = (
    {"look": True, "clip": 0.05, "accumulate": 2},
    {"batch": 2, "accumulate": 2, "bucket": 500},  # fewer examples than ranks: some have nothing to do
    {"batch": EXAMPLES, "bucket": 10**6},
)


@functools.cache
def one_process(name: str, **options: Any) -> dict[str, Any]:
    """Train on one rank with every vector whole, in one bucket."""
    comm = world()
    model, inputs = MODELS[name][0](), MODELS[name][1]()
    labels = labels_of(name, inputs)
    groups = flatten(model)
    rule = SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01)
    sync = DataParallel(Mesh(comm, data=1), groups, rule, options.get("clip"))
    replica = Whole(model, whole_loss, sync)
    losses, norms = [], []
    for epoch in range(STEPS):
        for rows, count in loader.read(EXAMPLES, options.get("batch", 7), 0, epoch, 0, 1):
            if len(losses) < STEPS:
                batch = Batch(inputs[rows], labels[rows], count * labels[0].size)
                losses.append(replica.forward_backward(batch))
                norms.append(sync.step())
    weights = [p.data.copy() for p in model.parameters()]
    return {"losses": np.array(losses), "norms": np.array(norms), "weights": weights}


@pytest.fixture
def references(name: str) -> list[dict[str, Any]]:
    return [one_process(name, **{k: v for k, v in case.items() if k in ("batch", "clip")}) for case in CASES]


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_every_stage_equals_one_process(
    comm: Communicator, name: str, stage: int, references: list[dict[str, Any]]
) -> None:
    turn = (comm.size + stage) % len(CASES)  # on 1 to 4 ranks each stage has each case
    assert_equal(train(comm, name, stage, **CASES[turn]), references[turn])


@pytest.mark.parametrize("name", ["tied", "sometimes unused"])
@pytest.mark.ranks(3, transports=("mpi",))
def test_every_stage_on_mpi_equals_one_process(
    comm: Communicator, name: str, references: list[dict[str, Any]]
) -> None:
    for stage in (1, 2, 3):
        case = {**CASES[1], "bucket": 4000}
        assert_equal(train(comm, name, stage, **case), references[1])


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.ranks(2, 3, 4, transports=("threads",))
def test_every_rank_ends_with_the_same_bytes(comm: Communicator, stage: int) -> None:
    weights = np.concatenate([w.reshape(-1) for w in train(comm, "mlp", stage)["weights"]])
    everyone = comm.all_gather(weights[None])  # (ranks, n)
    assert (everyone == everyone[0]).all()


class Both(Module):
    """Two models side by side: of `same` all ranks along tensor have the gradient, of `partial` a part of the sum."""

    def __init__(self, spread: bool) -> None:
        self.same = MLP([16, 8, CLASSES], seed=None)
        self.partial = MLP([16, 7, CLASSES], seed=None)
        for model, partial in ((self.same, ()), (self.partial, ("tensor",))):
            for weight in model.parameters():
                if spread:
                    weight.place(Placement(weight.shape, repeated=("tensor",), partial=partial))
        self.initialize(7, np.float64)


def train_both(mesh: Mesh, make: Callable[..., Any], **options: Any) -> dict[str, Any]:
    spread = "tensor" in mesh.axes
    model = Both(spread)
    groups = flatten(model)
    sync = make(
        mesh, groups, SGD(groups, lr=0.1, momentum=0.9), clip_norm=0.3, bytes_per_bucket=300, **options
    )
    replica = Replica(model, sync)
    x, labels = images(), labels_of("mlp", images())
    mine = loader.share(np.arange(EXAMPLES), mesh.comm("data").rank, mesh.size("data"))
    part = loader.share(mine, mesh.comm("tensor").rank, mesh.size("tensor")) if spread else mine
    norms = []
    for _ in range(STEPS):
        replica.begin()
        loss = whole_loss(model.same(x[mine]), labels[mine], EXAMPLES) + whole_loss(
            model.partial(x[part]), labels[part], EXAMPLES
        )
        loss.backward(ready=replica.ready, tick=sync.tick)
        replica.end()
        norms.append(sync.step())
    sync.finish()
    weights = [p.data.copy() for p in model.parameters()]
    return {"losses": np.zeros(1), "norms": np.array(norms), "weights": weights}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.ranks(4, transports=("threads",))
def test_gradients_that_are_partial_over_other_axes_and_copies_count_once(
    comm: Communicator, stage: int
) -> None:
    one = train_both(Mesh(comm.alone("one"), data=1), DataParallel)
    for data, tensor in ((2, 2), (4, 1), (1, 4)):
        assert_equal(train_both(Mesh(comm, data=data, tensor=tensor), Zero, stage=stage), one)


def test_a_stage_that_does_not_exist_is_refused() -> None:
    groups = flatten(MODELS["mlp"][0]())
    with pytest.raises(ValueError, match="stage is 4, expected 1"):
        Zero(Mesh(world(), data=1), groups, SGD(groups, lr=0.1), stage=4)


def train_spread(mesh: Mesh, name: str, stage: int, **how: Any) -> dict[str, Any] | None:
    """Train a model that is spread over the mesh; give the histories, and its weights where they are whole."""
    model, loss = UNDRAWN[name](), whole_loss
    if mesh.axes.get("tensor", 1) > 1:
        loss, how["argmax"] = parallelize(model, mesh)
    model = cut(model, mesh, how.pop("chunks", 1))
    model.initialize(0, np.float64)
    groups = flatten(model)
    sync = Zero(mesh, groups, SGD(groups, lr=0.1, momentum=0.9), 0.5, how.pop("bucket", 2000), stage)
    replica = PipelineParallel(model, loss, sync, mesh, **how)
    inputs = MODELS[name][1]()
    labels = labels_of(name, inputs)
    losses, norms = [], []
    for step in range(STEPS):
        mine = loader.share(np.arange(step % 5, EXAMPLES), mesh.comm("data").rank, mesh.size("data"))
        share = replica.forward_backward(
            Batch(inputs[mine], labels[mine], (EXAMPLES - step % 5) * labels[0].size)
        )
        losses.append(float(mesh.everyone.all_reduce(np.array(share))))
        norms.append(sync.step())
    sync.finish()
    whole = whole_weights(mesh, groups)
    if whole is None:
        return None
    weights = [value for _, value in sorted(whole.items())]
    return {"losses": np.array(losses), "norms": np.array(norms), "weights": weights}


UNDRAWN: dict[str, Callable[[], Module]] = {
    "mlp": lambda: MLP([16, 8, 7, 6, CLASSES], seed=None),
    "gpt": lambda: GPT(CLASSES, time=4, layers=2, width=4, heads=2, seed=None),
}


@pytest.mark.parametrize("name", ["mlp", "gpt"])
@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.ranks(4, transports=("threads",))
def test_replicas_that_are_spread_over_ranks_equal_one_process(
    comm: Communicator, name: str, stage: int
) -> None:
    one = train_spread(Mesh(comm.alone("one"), data=1, pipe=1), name, 1, microbatches=1)
    every: list[tuple[dict[str, int], dict[str, Any]]] = [
        ({"data": 2, "pipe": 2}, {"microbatches": 5, "recompute": True}),
        ({"data": 2, "pipe": 2}, {"microbatches": 3, "schedule": "zero-bubble", "accumulate": 2}),
        ({"data": 2, "pipe": 2}, {"chunks": 2, "microbatches": 2, "bucket": 500}),
        ({"data": 2, "pipe": 1, "tensor": 2}, {"microbatches": 1}),
        ({"data": 1, "pipe": 2, "tensor": 2}, {"microbatches": 3}),
    ]
    for axes, how in every if stage == 3 else every[stage::3]:
        many = train_spread(Mesh(comm, **axes), name, stage, **how)
        assert one is not None
        if many is not None:
            assert_equal(many, one)


@pytest.mark.ranks(2, transports=("threads",))
def test_a_stage_does_not_wait_in_backward_for_a_sum_that_another_stage_can_join_only_later(
    comm: Communicator,
) -> None:
    class Stage(Module):
        def __init__(self) -> None:
            self.c, self.b, self.a, self.tied = Weight(3), Weight(3), Weight(3), Weight(3)
            self.tied.place(Placement((3,), repeated=("pipe",), partial=("pipe",)))
            self.initialize(0, np.float64)

    mesh = Mesh(comm, data=1, pipe=2)
    model = Stage()
    groups = flatten(model)
    sync = Zero(mesh, groups, SGD(groups, lr=1.0), bytes_per_bucket=1, stage=2)
    assert [bucket.parameters[0].name for bucket in sync.buckets] == ["tied", "a", "b", "c"]
    if comm.rank == 0:  # its backward begins when that of the last stage has ended
        comm.recv(np.empty(1), source=1)
    for bucket in sync.buckets:
        bucket.parameters[0].accumulate(np.ones(3))
        sync.gradient_ready(bucket)
    if comm.rank == 1:
        comm.send(np.zeros(1), dest=0)
    assert sync.step() == pytest.approx(np.sqrt(3 * (2 * 2 + 2 * 3)))
    assert (model.tied.data == -2).all()
    assert (model.a.data == -1).all()
