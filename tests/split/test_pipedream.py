"""PipeDream does what its paper says, update by update, and is refused without the weights that it must keep."""

from typing import Any

import numpy as np
import pytest

from minidist.autograd import ops
from minidist.comm import Communicator, Mesh, world
from minidist.comm.threads import run_ranks
from minidist.data import loader
from minidist.errors import UserError
from minidist.models import GPT, MLP
from minidist.nn import flatten
from minidist.optim import SGD
from minidist.random import uniform
from minidist.split.gather import whole_weights
from minidist.split.pipedream import PipeDream
from minidist.split.pipeline_parallel import cut
from minidist.split.replica import Batch
from minidist.sync.data_parallel import DataParallel
from minidist.sync.seam import Sync

SIZES = [6, 5, 7, 4, 3]  # a layer for each of 4 ranks
EXAMPLES, MICROBATCHES = 27, 8
LR = 0.1


def examples() -> tuple[np.ndarray, np.ndarray]:
    return uniform(1, "x", 0, 0, EXAMPLES * 6).reshape(EXAMPLES, 6), np.arange(EXAMPLES) * 7 % 3


class Recorded(PipeDream):
    """Write down how many updates the weights have seen in each forward, and how many copies are kept."""

    def forward(self, m: int, chunk: int) -> None:
        self.seen.append(self.updates)
        super().forward(m, chunk)

    def update(self, m: int) -> None:
        super().update(m)
        self.updates += 1
        self.copies = max(self.copies, *(len(p.stash or ()) for p in self.stage.parameters()))

    seen: list[int]
    updates = copies = 0


def build(comm: Communicator, pipe: int, kind: type[PipeDream] = Recorded, model: Any = None) -> Any:
    mesh = Mesh(comm, data=comm.size // pipe, pipe=pipe)
    stage = cut(MLP(SIZES, None) if model is None else model, mesh, costs=None if model else [1.0] * 4)
    stage.initialize(0, np.float64)
    groups = flatten(stage)
    sync = DataParallel(mesh, groups, SGD(groups, lr=LR))
    replica = kind(stage, ops.cross_entropy, sync, mesh, MICROBATCHES)
    replica.seen = []  # type: ignore[attr-defined]
    return replica, mesh, groups


def emulate(stages: int, epochs: int) -> tuple[list[float], dict[str, np.ndarray]]:
    """Do in one process, with a history of weights, what the ranks of a pipe do: the answer that is to come out."""
    model = MLP(SIZES, 0, np.float64)
    names = [name for name, _ in model.named_parameters()]
    stage_of = {name: min(int(name.split(".")[1]) * stages // 4, stages - 1) for name in names}
    parameters = dict(model.named_parameters())
    history = [{name: p.data.copy() for name, p in parameters.items()}]
    x, labels = examples()
    losses = []
    for _ in range(epochs):
        start, total = len(history) - 1, 0.0
        for m, rows in enumerate(np.array_split(np.arange(EXAMPLES), MICROBATCHES)):
            for name, p in parameters.items():
                p.data = history[start + max(0, m - (stages - 1 - stage_of[name]))][name]
                p.zero_grad()
            loss = ops.cross_entropy(model(x[rows]), labels[rows], len(rows))
            loss.backward()
            total += loss.item() * len(rows) / EXAMPLES
            history.append({name: history[-1][name] - LR * p.grad for name, p in parameters.items()})
        losses.append(total)
    return losses, history[-1]


@pytest.fixture
def expected(comm: Any) -> Any:
    return {pipe: emulate(pipe, epochs=3) for pipe in (1, 2, 4)}


def check(comm: Communicator, pipe: int, expected: Any) -> None:
    replica, mesh, groups = build(comm, pipe)
    x, labels = examples()
    place, places = mesh.coordinates["data"], mesh.axes["data"]
    # Each replica takes its share of every microbatch; the numbers are such that cutting these again gives the same.
    rows = np.concatenate(
        [loader.share(part, place, places) for part in np.array_split(np.arange(EXAMPLES), MICROBATCHES)]
    )
    losses = []
    for _ in range(3):
        loss = replica.forward_backward(Batch(x[rows], labels[rows], EXAMPLES))
        losses.append(float(comm.all_reduce(np.array(loss))))
        replica.sync.step()
    weights = whole_weights(mesh, groups)
    np.testing.assert_allclose(losses, expected[0], rtol=1e-12)
    for name, array in (weights or {}).items():
        np.testing.assert_allclose(array, expected[1][name], rtol=0, atol=1e-12)


@pytest.mark.ranks(1, 2, 4, transports=("threads",))
def test_each_gradient_is_that_of_one_version_on_each_stage(comm: Communicator, expected: Any) -> None:
    check(comm, comm.size, expected[comm.size])


@pytest.mark.ranks(4, transports=("threads",))
def test_two_replicas_update_together_with_the_sum_of_their_gradients(
    comm: Communicator, expected: Any
) -> None:
    check(comm, 2, expected[2])


@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_rank_i_of_s_computes_with_weights_that_are_s_1_i_updates_old(comm: Communicator) -> None:
    replica, _, _ = build(comm, comm.size)
    x, labels = examples()
    behind = comm.size - 1 - comm.rank
    for epoch in range(2):
        replica.seen.clear()
        replica.forward_backward(Batch(x, labels, EXAMPLES))
        start = epoch * MICROBATCHES
        assert replica.seen == [start + max(0, m - behind) for m in range(MICROBATCHES)]
        assert replica.copies == behind  # and the weights themselves: min(M, S - i) versions
        assert all(not p.stash for p in replica.stage.parameters())
        replica.sync.step()


@pytest.mark.ranks(4, transports=("threads",))
def test_replicas_update_together_also_where_one_of_them_has_no_example(comm: Communicator) -> None:
    replica, mesh, groups = build(comm, 2)
    x, labels = examples()
    place = mesh.coordinates["data"]
    for rows in (
        np.arange(27)[place * 14 : place * 14 + 14],
        np.arange(3)[: 3 - place],
        np.arange(1 - place),
    ):
        count = int(mesh.comm("data").all_reduce(np.array(len(rows))))
        replica.forward_backward(Batch(x[rows], labels[rows], count))
        replica.sync.step()
    weights = np.concatenate([group.weights for group in groups])[None]
    both = mesh.comm("data").all_gather(weights)
    assert (both[0] == both[1]).all()
    assert np.isfinite(both).all()


@pytest.mark.ranks(3, transports=("threads",))
def test_a_tied_weight_stays_the_same_on_both_its_ranks(comm: Communicator) -> None:
    model = GPT(5, 3, 2, 4, 2, seed=None)
    replica, mesh, _ = build(comm, 3, model=model)
    tokens = (uniform(2, "t", 0, 0, 9 * 3) * 5).astype(np.int64).reshape(9, 3)
    for _ in range(2):
        replica.forward_backward(Batch(tokens, tokens, tokens.size))
        replica.sync.step()
    if comm.rank != 1:
        both = mesh.comm("stages 0+2").all_gather(model.tokens.weight.data[None])
        assert (both[0] == both[1]).all()


class Careless(PipeDream):
    def stash(self) -> None:
        """Keep nothing."""


def test_without_stashing_the_tape_refuses() -> None:
    def train(comm: Communicator) -> None:
        replica, _, _ = build(comm, comm.size, Careless)
        x, labels = examples()
        replica.forward_backward(Batch(x, labels, EXAMPLES))

    with pytest.raises(RuntimeError, match=r"was used at .* in version \d+, but backward finds version"):
        run_ranks(train, 3)


def test_wrong_uses_are_refused_in_one_sentence() -> None:
    mesh = Mesh(world(), data=1, pipe=1)
    stage = cut(MLP(SIZES, None), mesh)
    groups = flatten(stage.initialize(0))
    clipped = DataParallel(mesh, groups, SGD(groups, lr=LR), clip_norm=0.5)
    with pytest.raises(UserError, match=r"clipped at 0\.5, but PipeDream's stages update at different times"):
        PipeDream(stage, ops.cross_entropy, clipped, mesh)
    with pytest.raises(UserError, match="goes with data parallel alone, got Sync"):
        PipeDream(stage, ops.cross_entropy, Sync(), mesh)  # type: ignore[arg-type]
    two = cut(MLP(SIZES, None), mesh, chunks=2)
    groups = flatten(two.initialize(0))
    sync = DataParallel(mesh, groups, SGD(groups, lr=LR))
    with pytest.raises(UserError, match="one stage for each rank, got 2 chunks"):
        PipeDream(two, ops.cross_entropy, sync, mesh)
