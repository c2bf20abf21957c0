"""Model averaging: its means are those made by hand, in its simplest form it is data parallel, and it sends 1/k."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from minidist.comm import Communicator, Mesh
from minidist.data import loader
from minidist.errors import UserError
from minidist.models import GPT, MLP
from minidist.nn import Linear, Module, Placement, flatten
from minidist.optim import SGD, AdamW
from minidist.split.replica import Batch, whole_loss
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel
from minidist.sync.model_averaging import ModelAveraging, OuterNesterov, gaps
from minidist.sync.seam import Sync
from minidist.testing.small import CLASSES, EXAMPLES, Frozen, images, labels_of, tokens

STEPS = 20


MODELS: dict[str, tuple[Callable[[], Module], Callable[[], np.ndarray]]] = {
    "mlp": (lambda: MLP([16, 8, CLASSES], dtype=np.float64), images),
    "frozen": (Frozen, images),
    "gpt": (lambda: GPT(CLASSES, time=4, layers=1, width=4, heads=2, dtype=np.float64), tokens),
}


def train(
    comm: Communicator,
    make_sync: Callable[..., Sync],
    name: str = "mlp",
    batch: int = 7,
    momentum: float = 0.0,
    steps: int = STEPS,
    cut: loader.Cut = loader.share,
) -> dict[str, Any]:
    """Train as train.py does, and remember the loss of each step over all replicas, and the weights after it."""
    make, data = MODELS[name]
    model, inputs = make(), data()
    labels = labels_of(name, inputs)
    for parameter in model.parameters():
        parameter.data = parameter.data + comm.rank  # replicas that were built differently must be made equal
    groups = flatten(model)
    optimizer = SGD(groups, lr=0.1, momentum=momentum, weight_decay=0.01)
    sync = make_sync(Mesh(comm, data=comm.size), groups, optimizer)
    replica = Whole(model, whole_loss, sync)
    losses, history = [], []
    for epoch in range(steps):
        for rows, count in loader.read(EXAMPLES, batch, 0, epoch, comm.rank, comm.size, cut):
            if len(losses) == steps:
                break
            targets = labels[0].size
            own, whole = len(rows) * targets, count * targets
            divisor = sync.divisor(own, whole)
            loss = replica.forward_backward(Batch(inputs[rows], labels[rows], divisor))
            losses.append(float(comm.all_reduce(np.array(loss * divisor / whole))))
            sync.step()
            history.append(np.concatenate([group.weights for group in groups]))
    sync.finish()
    final = np.concatenate([group.weights for group in groups])
    return {"losses": np.array(losses), "weights": final, "history": history, "sync": sync}


def assert_equal(mine: dict[str, Any], reference: dict[str, Any]) -> None:
    np.testing.assert_allclose(mine["losses"], reference["losses"], rtol=1e-12, atol=0)
    difference = abs(mine["weights"] - reference["weights"]).max()
    assert difference <= 1e-12 * abs(reference["weights"]).max()


def averaging(**options: Any) -> Callable[..., Sync]:
    return lambda mesh, groups, optimizer: ModelAveraging(mesh, groups, optimizer, **options)


def check_parity(comm: Communicator, name: str, batch: int) -> None:
    reference = train(comm, DataParallel, name, batch)
    assert_equal(train(comm, averaging(every=1), name, batch), reference)
    reference = train(comm, DataParallel, name, batch, momentum=0.9)
    assert_equal(train(comm, averaging(every=1, state="average"), name, batch, 0.9), reference)
    assert_equal(train(comm, averaging(every=5, warm_up=STEPS), name, batch, 0.9), reference)


@pytest.mark.parametrize("batch", [7, 2])  # 2: some replicas have no examples
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_an_average_after_every_step_is_data_parallel(comm: Communicator, batch: int) -> None:
    check_parity(comm, "mlp", batch)


@pytest.mark.parametrize("name", ["frozen", "gpt"])
@pytest.mark.ranks(3, transports=("threads",))
def test_an_average_after_every_step_is_data_parallel_for_all_models(comm: Communicator, name: str) -> None:
    check_parity(comm, name, batch=7)


@pytest.mark.ranks(2, 3, transports=("mpi",))
def test_an_average_after_every_step_is_data_parallel_on_mpi(comm: Communicator) -> None:
    reference = train(comm, DataParallel, momentum=0.9)
    assert_equal(train(comm, averaging(every=1, state="average"), momentum=0.9), reference)


@pytest.mark.ranks(3, transports=("threads",))
def test_momentum_that_each_keeps_is_not_data_parallel_where_shares_are_uneven(comm: Communicator) -> None:
    reference = train(comm, DataParallel, momentum=0.9)
    kept = train(comm, averaging(every=1, state="keep"), momentum=0.9)
    assert abs(kept["weights"] - reference["weights"]).max() > 1e-9 * abs(reference["weights"]).max()


def uneven(rows: np.ndarray, rank: int, size: int) -> np.ndarray:
    """Give the last rank one row, and the first most."""
    return np.split(rows, [len(rows) - size + 1, *range(len(rows) - size + 2, len(rows))])[rank]


@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_averages_are_weighted_by_the_examples_since_the_last_one(comm: Communicator) -> None:
    for steps in (4, 6):  # 6: finish() averages what two steps have done
        mine = train(comm, averaging(every=4), steps=steps, cut=uneven)

    # By hand: every replica alone, from the same start, on its rows.
    make, data = MODELS["mlp"]
    batches = [rows for epoch in range(2) for rows in loader.batches(EXAMPLES, 7, 0, epoch)][:6]
    labels = labels_of("mlp", images())
    model = make()
    (group,) = flatten(model)
    weights = group.weights.copy()
    for first, last in ((0, 4), (4, 6)):
        counts, results = np.zeros(comm.size), []
        for rank in range(comm.size):
            group.weights[...] = weights
            group.updated()
            optimizer = SGD([group], lr=0.1, weight_decay=0.01)
            for rows in batches[first:last]:
                rows = uneven(rows, rank, comm.size)
                counts[rank] += len(rows)
                for parameter in model.parameters():
                    parameter.zero_grad()
                if len(rows):
                    whole_loss(model(data()[rows]), labels[rows], len(rows)).backward()
                    optimizer.step()
            results.append(group.weights.copy())
        weights = np.average(results, axis=0, weights=counts)
    assert len(set(counts)) > 1 or comm.size == 1
    assert abs(mine["weights"] - weights).max() <= 1e-12 * abs(weights).max()
    everyone = comm.all_gather(mine["weights"][None])
    assert (everyone == everyone[0]).all()


@pytest.mark.ranks(4, transports=("threads",))
def test_replicas_differ_between_averages_and_agree_after_them(comm: Communicator) -> None:
    history = train(comm, averaging(every=3, warm_up=2, growth=2.0), momentum=0.9)["history"]
    agreed = []
    for step, weights in enumerate(history, start=1):
        everyone = comm.all_gather(weights[None])
        if (everyone == everyone[0]).all():
            agreed.append(step)
    assert agreed == [1, 2, 5, 11]  # two of warm-up, then gaps of 3, 6, 12


def test_gaps_grow_without_end() -> None:
    assert list(islice(gaps(2, 1.5), 5)) == [2, 3, 4, 6, 10]
    assert list(islice(gaps(4, 1.0), 3)) == [4, 4, 4]


@pytest.mark.parametrize("state", ["keep", "average"])
@pytest.mark.ranks(2, 3, transports=("threads",))
def test_bytes_fall_as_1_over_k(comm: Communicator, state: str) -> None:
    def sent(every: int) -> np.ndarray:
        before = np.array([comm.counters[purpose] for purpose in ("weights", "gradient")])
        train(comm, averaging(every=every, state=state), momentum=0.9, steps=24)
        after = np.array([comm.counters[purpose] for purpose in ("weights", "gradient")])
        return comm.all_reduce(after - before)  # (purposes, 2)

    n = 8 * (16 * 8 + 8 + 8 * CLASSES + CLASSES)
    start = np.array([comm.size - 1, (comm.size - 1) * n])  # the broadcast at the beginning, whatever k is
    each = sent(1)[0] - start
    assert each[1] > 0
    for every in (2, 8, 24):
        weights, gradient = sent(every)
        assert ((weights - start) * every == each).all()
        assert not gradient.any()


@pytest.mark.parametrize("state", ["keep", "average", "reset"])
@pytest.mark.ranks(3, transports=("threads",))
def test_what_becomes_of_the_optimizers_state(comm: Communicator, state: str) -> None:
    model = Linear(3, 2).initialize(dtype=np.float64)
    groups = flatten(model)
    optimizer = AdamW(groups, lr=0.1)
    sync = ModelAveraging(Mesh(comm, data=3), groups, optimizer, every=2, state=state)
    counts = [1, 2, 0]
    for _ in range(2):
        sync.divisor(counts[comm.rank], 3)
        groups[0].gradients[...] = comm.rank + 1
        sync.step()
    mean, square = (optimizer.state[slot][0] for slot in ("mean", "square"))
    # after two steps with gradient g: mean = g (1 - 0.9^2), square = g^2 (1 - 0.999^2)
    g, squared = {"keep": (comm.rank + 1, (comm.rank + 1) ** 2), "average": (5 / 3, 3), "reset": (0, 0)}[
        state
    ]
    if state == "keep" and comm.rank == 2:
        g = squared = 0  # it had no examples and took no step
    np.testing.assert_allclose(mean, g * (1 - 0.9**2), rtol=1e-12)
    np.testing.assert_allclose(square, squared * (1 - 0.999**2), rtol=1e-12)
    assert optimizer.steps == {"keep": [2, 2, 0][comm.rank], "average": 2, "reset": 0}[state]


@pytest.mark.ranks(2, transports=("threads",))
def test_each_replica_clips_by_its_own_norm(comm: Communicator) -> None:
    groups = flatten(Linear(1, 2).initialize(dtype=np.float64))
    groups[0].weights[...] = 0
    sync = ModelAveraging(Mesh(comm, data=2), groups, SGD(groups, lr=1.0), clip_norm=1.0, every=1)
    sync.divisor(1, 2)
    groups[0].gradients[...] = [0, 0, 0, 4.0] if comm.rank else [0, 0.5, 0, 0]
    assert sync.step() == (4.0 if comm.rank else 0.5)
    np.testing.assert_allclose(groups[0].weights, [0, -0.25, 0, -0.5])  # the mean of -0.5 and -1


@pytest.mark.ranks(1, 2, 3, transports=("threads",))
def test_the_outer_step_is_nesterovs_along_the_averaged_change(comm: Communicator) -> None:
    plain = train(comm, averaging(every=4), momentum=0.9)
    trivial = train(comm, averaging(every=4, outer=OuterNesterov(1.0, 0.0)), momentum=0.9)
    assert abs(trivial["weights"] - plain["weights"]).max() <= 1e-12

    groups = flatten(Linear(1, 1).initialize(dtype=np.float64))
    groups[0].weights[...] = 1.0
    outer = OuterNesterov(0.7, 0.9)
    sync = ModelAveraging(Mesh(comm, data=comm.size), groups, SGD(groups, lr=1.0), every=2, outer=outer)
    w, v = 1.0, 0.0
    for _ in range(3):
        for _ in range(2):
            sync.divisor(1, comm.size)
            groups[0].gradients[...] = comm.rank  # so the mean change of two steps is size - 1
            sync.step()
        v = 0.9 * v + (comm.size - 1)
        w -= 0.7 * ((comm.size - 1) + 0.9 * v)
        np.testing.assert_allclose(groups[0].weights, w, rtol=1e-12)
    sync.finish()
    np.testing.assert_allclose(groups[0].weights, w, rtol=1e-12)


@pytest.mark.ranks(4, transports=("threads",))
def test_replicas_that_are_spread_sum_what_is_partial_in_every_step(comm: Communicator) -> None:
    mesh = Mesh(comm, data=2, pipe=2)
    mesh.name_part("ends", "pipe", (0, 1))
    replica, stage = mesh.coordinates["data"], mesh.coordinates["pipe"]
    layer = Linear(1, 1)
    layer.weight.place(Placement((1, 1), repeated=("ends",), partial=("ends",)))
    layer.initialize(dtype=np.float64)
    groups = flatten(layer)
    tied, own = (group for group in sorted(groups, key=lambda group: group.axes == ("data",)))
    for group in groups:
        group.weights[...] = 0
    sync = ModelAveraging(mesh, groups, SGD(groups, lr=1.0), every=2)
    norms = []
    for _ in range(2):
        sync.divisor(replica + 1, 3)  # replica 1 counts twice
        tied.gradients[...] = 10 * replica + stage + 1  # 1 + 2 and 11 + 12
        own.gradients[...] = stage + 1
        norms.append(sync.step())
    np.testing.assert_allclose(norms, [np.sqrt([3.0, 23.0][replica] ** 2 + 1 + 4)] * 2)
    np.testing.assert_allclose(tied.weights, -2 * (3 + 2 * 23) / 3)
    np.testing.assert_allclose(own.weights, -2 * (stage + 1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, "every 0 steps cannot be made"),
        ({"warm_up": -1}, "a warm-up of -1 steps"),
        ({"growth": 0.5}, "gaps that grow by 0.5 would vanish"),
        ({"growth": float("nan")}, "gaps that grow by nan"),
        ({"state": "drop"}, "cannot be 'drop'; expected one of keep, average, reset"),
    ],
)
@pytest.mark.ranks(1, transports=("threads",))
def test_plans_that_make_no_sense_are_refused(
    comm: Communicator, options: dict[str, Any], words: str
) -> None:
    groups = flatten(Linear(1, 1).initialize())
    with pytest.raises(UserError, match=words):
        ModelAveraging(Mesh(comm, data=1), groups, SGD(groups, lr=1.0), **options)
    with pytest.raises(ValueError, match="nobody said how many targets this step has"):
        ModelAveraging(Mesh(comm, data=1), groups, SGD(groups, lr=1.0)).step()
    with pytest.raises(UserError, match=r"lr 0 and momentum 0\.9"):
        OuterNesterov(0)
    with pytest.raises(UserError, match="momentum 1"):
        OuterNesterov(0.7, 1)
