"""Data parallel training equals one process: losses, gradient norms, weights; and buckets leave during backward."""

import contextlib
import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minidist.autograd import Parameter
from minidist.comm import Communicator, Mesh, NotShared, world
from minidist.comm.events import Event, Listener
from minidist.data import loader
from minidist.models import CNN, GPT, MLP
from minidist.nn import Bucket, Linear, Module, flatten
from minidist.optim import SGD
from minidist.split.replica import Batch, whole_loss
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel
from minidist.testing.small import CLASSES, EXAMPLES, Frozen, SometimesUnused, Tied, images, labels_of, tokens

STEPS = 20


MODELS: dict[str, tuple[Callable[[], Module], Callable[[], np.ndarray]]] = {
    "mlp": (lambda: MLP([16, 8, 7, CLASSES], dtype=np.float64), images),
    "cnn": (lambda: CNN((1, 4, 4), CLASSES, channels=(2, 3), dtype=np.float64), images),
    "gpt": (lambda: GPT(CLASSES, time=4, layers=2, width=8, heads=2, dtype=np.float64), tokens),
    "tied": (Tied, tokens),
    "frozen": (Frozen, images),
    "sometimes unused": (SometimesUnused, images),
}


def train(
    comm: Communicator,
    name: str,
    batch: int = 7,
    accumulate: int = 1,
    clip: float | None = None,
    bucket: int = 200,
    shared: bool | None = None,
) -> dict[str, Any]:
    make, data = MODELS[name]
    model, inputs = make(), data()
    labels = labels_of(name, inputs)
    if comm.rank:  # replicas that were built differently must be made equal
        for parameter in model.parameters():
            parameter.data = parameter.data + comm.rank
    groups = flatten(model)
    sync = DataParallel(
        Mesh(comm, data=comm.size),
        groups,
        SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01),
        clip,
        bucket,
        shared,
    )
    replica = Whole(model, whole_loss, sync, accumulate)
    losses, norms = [], []
    for epoch in range(STEPS):
        for rows, count in loader.read(EXAMPLES, batch, 0, epoch, comm.rank, comm.size):
            if len(losses) == STEPS:
                break
            loss = replica.forward_backward(Batch(inputs[rows], labels[rows], count * labels[0].size))
            losses.append(float(comm.all_reduce(np.array(loss))))
            norms.append(sync.step())
    return {
        "losses": np.array(losses),
        "norms": np.array(norms),
        "weights": [g.weights.copy() for g in groups],
    }


def assert_equal(many: dict[str, Any], one: dict[str, Any]) -> None:
    for history in ("losses", "norms"):
        np.testing.assert_allclose(many[history], one[history], rtol=1e-12, atol=0)
    for a, b in zip(many["weights"], one["weights"], strict=True):
        assert abs(a - b).max() <= 1e-12 * abs(b).max()


CASES: tuple[dict[str, Any], ...] = (
    {},
    {"accumulate": 3},
    {"batch": 2},  # fewer examples than ranks: some have nothing to do
    {"batch": 3, "accumulate": 4},
    {"batch": EXAMPLES, "bucket": 10**6},
    {"clip": 0.05, "accumulate": 2},
    {"shared": False},  # by messages, also where the replicas could share memory
    {"shared": False, "bucket": 10**6, "batch": 5},
)


@functools.cache
def one_process(name: str, **options: Any) -> dict[str, Any]:
    """Train on one rank, here in the process of pytest, in one piece and in one bucket."""
    return train(world(), name, bucket=10**6, **options)


@pytest.fixture
def references(name: str) -> list[dict[str, Any]]:
    return [one_process(name, **{k: v for k, v in case.items() if k in ("batch", "clip")}) for case in CASES]


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_training_equals_one_process(comm: Communicator, name: str, references: list[dict[str, Any]]) -> None:
    for number, (case, reference) in enumerate(zip(CASES, references, strict=True)):
        # The slow models have half of the cases on each number of ranks.
        if name not in ("gpt", "cnn") or number % 2 == comm.size % 2:
            assert_equal(train(comm, name, **case), reference)


@pytest.mark.parametrize("name", ["mlp", "tied", "sometimes unused"])
@pytest.mark.ranks(2, 3, 4, transports=("mpi",))
def test_training_on_mpi_equals_one_process(
    comm: Communicator, name: str, references: list[dict[str, Any]]
) -> None:
    for case, reference in zip(CASES, references, strict=True):
        assert_equal(train(comm, name, **case), reference)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.ranks(2, 3, 4)
def test_every_rank_ends_with_the_same_bytes(comm: Communicator, shared: bool) -> None:
    (weights,) = train(comm, "mlp", shared=shared)["weights"]
    everyone = comm.all_gather(weights[None])  # (ranks, n)
    assert (everyone == everyone[0]).all()


@pytest.mark.ranks(2, transports=("mpi",))
def test_replicas_that_cannot_share_memory_send_and_say_so_once(comm: Communicator) -> None:
    def refuse(n: int, dtype: Any) -> np.ndarray:
        raise NotShared("there is no room")

    comm.allocate_shared = refuse  # type: ignore[method-assign]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        train(comm, "mlp")
    assert said.getvalue() == (
        "" if comm.rank else "note: gradients are sent by messages, for there is no room\n"
    )
    with pytest.raises(NotShared, match="there is no room"):
        train(comm, "mlp", shared=True)


class Recorded(DataParallel, Listener):
    """Write down, in order, what happens in a step."""

    def __init__(self, comm: Communicator, model: Module) -> None:
        self.order: list[str] = []
        groups = flatten(model)
        super().__init__(Mesh(comm, data=comm.size), groups, SGD(groups, lr=0.1), bytes_per_bucket=1)
        comm.listeners.append(self)

    def tick(self) -> None:
        self.order.append("node")
        super().tick()

    def gradient_ready(self, bucket: Bucket) -> None:
        self.order.append(f"ready {bucket.index}")
        super().gradient_ready(bucket)

    def before(self, event: Event) -> None:
        if event.purpose == "gradient":
            self.order.append("launch")


@pytest.mark.ranks(2, 3)
def test_buckets_leave_while_backward_still_runs(comm: Communicator) -> None:
    model = MODELS["mlp"][0]()
    sync = Recorded(comm, model)
    rows = loader.share(np.arange(EXAMPLES), comm.rank, comm.size)
    Whole(model, whole_loss, sync).forward_backward(
        Batch(images()[rows], np.zeros(len(rows), np.int64), EXAMPLES)
    )
    launches = [i for i, what in enumerate(sync.order) if what == "launch"]
    last_node = max(i for i, what in enumerate(sync.order) if what == "node")
    assert len(launches) == len(sync.buckets) == 6
    assert sum(i < last_node for i in launches) >= 4, sync.order
    sync.step()


@pytest.mark.parametrize(("name", "accumulate"), [("tied", 3), ("sometimes unused", 2), ("frozen", 1)])
@pytest.mark.ranks(1, 2, 3, 4)
def test_each_bucket_is_ready_once_a_step_and_launched_once(
    comm: Communicator, name: str, accumulate: int
) -> None:
    make, data = MODELS[name]
    model, inputs = make(), data()
    sync = Recorded(comm, model)
    replica = Whole(model, whole_loss, sync, accumulate)
    for _ in range(2):
        sync.order.clear()
        rows = loader.share(np.arange(5), comm.rank, comm.size)
        replica.forward_backward(Batch(inputs[rows], np.zeros(len(rows), np.int64), 5))
        ready = sorted(what for what in sync.order if what.startswith("ready"))
        assert ready == [f"ready {index}" for index in range(len(sync.buckets))]
        assert sync.order.count("launch") == (len(sync.buckets) if comm.size > 1 else 0)
        sync.step()


@pytest.mark.ranks(2, 3, 4)
def test_gradient_bytes_are_what_a_ring_or_its_rivals_must_send(comm: Communicator) -> None:
    model = MODELS["mlp"][0]()
    groups = flatten(model)
    sync = DataParallel(Mesh(comm, data=comm.size), groups, SGD(groups, lr=0.1))
    before = comm.counters["gradient"]
    Whole(model, whole_loss, sync).forward_backward(Batch(images()[:2], np.zeros(2, np.int64), 2 * comm.size))
    sync.step()
    sent = comm.counters["gradient"][1] - before[1]
    total = int(comm.all_reduce(np.array(sent)))
    least = 2 * (comm.size - 1) * groups[0].gradients.nbytes  # Patarasuk & Yuan 2009
    assert total >= least


def test_a_parameter_of_integers_stays_out_of_the_gradients() -> None:
    class WithTable(Module):
        def __init__(self) -> None:
            self.table = Parameter(np.arange(3), requires_grad=False)
            self.layer = Linear(2, 2).initialize()

    groups = flatten(WithTable())
    assert [(g.dtype.kind, g.trainable) for g in groups] == [("f", True), ("i", False)]
