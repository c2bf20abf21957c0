"""The parameter server: in step it is data parallel; else every push counts once and no weights are too old."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minidist.autograd import Tensor, ops
from minidist.comm import CommError, Communicator, DeadlockError, Mesh, world
from minidist.data import loader
from minidist.errors import UserError
from minidist.models import GPT, MLP
from minidist.nn import Linear, Module, Placement, flatten
from minidist.optim import SGD, AdamW, Optimizer
from minidist.split.replica import Batch, whole_loss
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel
from minidist.sync.link import DATA, NOTE, PULL, PUSH, REPLY, Link, note
from minidist.sync.parameter_server import ParameterServer
from minidist.sync.seam import Sync
from minidist.sync.server import Server, serve
from minidist.sync.staleness import Clock, Event, violations
from minidist.testing.small import CLASSES, EXAMPLES, Frozen, images, labels_of, tokens

STEPS = 20


MODELS: dict[str, tuple[Callable[[], Module], Callable[[], np.ndarray]]] = {
    "mlp": (lambda: MLP([16, 8, CLASSES], dtype=np.float64), images),
    "frozen": (Frozen, images),
    "gpt": (lambda: GPT(CLASSES, time=4, layers=1, width=4, heads=2, dtype=np.float64), tokens),
}


def rule(groups: Any = ()) -> Optimizer:
    return SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01)


def train(
    comm: Communicator, make_sync: Callable[..., Sync], name: str = "mlp", batch: int = 7
) -> dict[str, Any]:
    """Train on the workers `comm` as train.py does; losses are each replica's own share, norms what step() gives."""
    make, data = MODELS[name]
    model, inputs = make(), data()
    labels = labels_of(name, inputs)
    for parameter in model.parameters():
        parameter.data = parameter.data + comm.rank  # replicas that were built differently must be made equal
    groups = flatten(model)
    sync = make_sync(Mesh(comm, data=comm.size), groups, rule(groups))
    replica = Whole(model, whole_loss, sync)
    losses, norms = [], []
    for epoch in range(STEPS):
        for rows, count in loader.read(EXAMPLES, batch, 0, epoch, comm.rank, comm.size):
            if len(losses) == STEPS:
                break
            targets = labels[0].size
            divisor = sync.divisor(len(rows) * targets, count * targets)
            losses.append(replica.forward_backward(Batch(inputs[rows], labels[rows], divisor)))
            norms.append(sync.step())
    sync.finish()
    return {
        "losses": comm.all_reduce(np.array(losses)),
        "norms": np.array(norms),
        "weights": np.concatenate([group.weights for group in groups]),
    }


def assert_equal(mine: dict[str, Any], reference: dict[str, Any]) -> None:
    for history in ("losses", "norms"):
        np.testing.assert_allclose(mine[history], reference[history], rtol=1e-12, atol=0)
    difference = abs(mine["weights"] - reference["weights"]).max()
    assert difference <= 1e-12 * abs(reference["weights"]).max()


def with_servers(
    comm: Communicator,
    servers: int,
    work: Callable[[Link], Any],
    optimizer: Optimizer | None = None,
    server: type[Server] = Server,
) -> Any:
    """Do `work` on the workers; on a server serve, and give the history."""
    link = Link(comm, comm.size - servers)
    if not link.serves:
        return work(link)
    history: list[Event] = []
    # The rate that counts is the workers'.
    server(link, optimizer or SGD([], lr=99), history).run()
    return history


CASES = [("mlp", 7, None), ("mlp", 2, 0.05), ("frozen", 7, None), ("gpt", 7, 0.5)]  # model, batch, clip_norm


@pytest.fixture(scope="module")
def references() -> list[dict[str, Any]]:
    return [
        train(world(), lambda *args, clip=clip: DataParallel(*args, clip), name, batch)  # type: ignore[misc]
        for name, batch, clip in CASES
    ]


def check_parity(comm: Communicator, servers: int, references: list[dict[str, Any]]) -> None:
    for (name, batch, clip), reference in zip(CASES, references, strict=True):
        if name == "gpt" and comm.size != 4:
            continue

        def work(link: Link, name: str = name, batch: int = batch, clip: float | None = clip) -> Any:
            def make(mesh: Mesh, groups: Any, optimizer: Optimizer) -> Sync:
                return ParameterServer(mesh, groups, optimizer, link, clip, slack=0, bytes_per_bucket=200)

            result = train(link.peers, make, name, batch)
            everyone = link.peers.all_gather(result["weights"][None])
            assert (everyone == everyone[0]).all()
            return result

        result = with_servers(comm, servers, work, rule())
        if isinstance(result, list):
            assert violations(result, comm.size - servers, 0) == []
            assert result[-1].version == STEPS
        else:
            assert_equal(result, reference)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.ranks(3, 4, 5, 6, transports=("threads",))
def test_in_step_it_equals_one_process(
    comm: Communicator, servers: int, references: list[dict[str, Any]]
) -> None:
    check_parity(comm, servers, references)


@pytest.mark.ranks(2, transports=("threads",))
def test_one_worker_in_step_equals_one_process(comm: Communicator, references: list[dict[str, Any]]) -> None:
    check_parity(comm, 1, references)


@pytest.mark.ranks(3, 4, transports=("mpi",))
def test_in_step_it_equals_one_process_on_mpi(comm: Communicator, references: list[dict[str, Any]]) -> None:
    check_parity(comm, comm.size - 2, references)


@pytest.mark.parametrize("slack", [2, None])
@pytest.mark.ranks(2, 3, transports=("threads",))
def test_one_worker_without_waiting_equals_one_process(
    comm: Communicator, slack: int | None, references: list[dict[str, Any]]
) -> None:
    def work(link: Link) -> Any:
        return train(link.peers, lambda *args: ParameterServer(*args, link, 0.05, slack), batch=2)

    result = with_servers(comm, comm.size - 1, work, rule())
    if not isinstance(result, list):
        assert_equal(result, references[1])


class Toy:
    """A worker whose gradients are made by hand: n numbers in two parameters, starting at 1."""

    def __init__(self, link: Link, slack: int | None, n: int = 5, lr: float = 1.0, **options: Any) -> None:
        self.link, layer = link, Linear(1, n).initialize(dtype=np.float64)
        (self.group,) = flatten(layer)
        self.group.weights[...] = 1.0
        self.mesh = Mesh(link.peers, data=link.peers.size)
        optimizer = SGD([self.group], lr=lr)
        self.sync = ParameterServer(self.mesh, [self.group], optimizer, link, slack=slack, **options)

    def step(self, gradient: float, own: int = 1, whole: int | None = None) -> float:
        """Take a step with all gradients alike."""
        self.sync.divisor(own, self.link.workers if whole is None else whole)
        self.group.gradients[...] = gradient
        for bucket in self.sync.buckets:
            self.sync.gradient_ready(bucket)
        return self.sync.step()

    @property
    def weights(self) -> np.ndarray:
        return self.group.weights


@pytest.mark.parametrize("slack", [0, 1, None])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.ranks(5, transports=("threads",))
def test_workers_with_4_4_and_5_batches_end(comm: Communicator, servers: int, slack: int | None) -> None:
    workers = comm.size - servers

    def work(link: Link) -> np.ndarray:
        toy = Toy(link, slack)
        rank = link.peers.rank
        for _ in range(5 if rank == workers - 1 else 4):
            toy.step(10.0**rank, own=1, whole=1)  # so that the weights say who has pushed how often
        toy.sync.finish()
        toy.sync.finish()  # does no more
        return toy.weights.copy()

    result = with_servers(comm, servers, work)
    if isinstance(result, list):
        assert violations(result, workers, slack) == []
        assert sum(event.kind == "push" for event in result) == 4 * workers + 1
    else:
        pushes = [4] * (workers - 1) + [5]
        expected = 1 - sum(count * 10.0**rank for rank, count in enumerate(pushes))
        np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.ranks(4, transports=("mpi",))
def test_unequal_workers_end_on_mpi(comm: Communicator) -> None:
    def work(link: Link) -> np.ndarray:
        toy = Toy(link, 1, n=5000)
        for _ in range(4 + link.peers.rank):
            toy.step(1.0, own=1, whole=1)
        toy.sync.finish()
        return toy.weights

    result = with_servers(comm, 1, work)
    if isinstance(result, list):
        assert violations(result, 3, 1) == []
    else:
        np.testing.assert_allclose(result, 1 - 15)


@pytest.mark.ranks(3, transports=("threads",))
def test_without_a_bound_a_fast_worker_never_waits_for_a_slow_one(comm: Communicator) -> None:
    def work(link: Link) -> None:
        toy = Toy(link, slack=None)
        if link.peers.rank == 0:
            for _ in range(10):
                toy.step(1.0)
            link.peers.send(np.array(1), 1)
        else:
            toy.step(1.0)
            link.peers.recv(np.array(0), 0)  # only now, when the other has done all its steps, the second one
            toy.step(1.0)
            assert toy.sync.versions.tolist() == [2]
        toy.sync.finish()
        np.testing.assert_allclose(toy.weights, 1 - 12 / 2)

    history = with_servers(comm, 1, work)
    if history is not None:
        assert violations(history, 2, None) == []
        assert any("was given version" in found for found in violations(history, 2, 8))


@pytest.mark.parametrize("slack", [1, 3])
@pytest.mark.ranks(3, transports=("threads",))
def test_a_worker_gets_slack_clocks_ahead_and_no_further(comm: Communicator, slack: int) -> None:
    def work(link: Link) -> None:
        toy = Toy(link, slack)
        if link.peers.rank == 0:
            for _ in range(slack):
                toy.step(1.0)  # nobody else has pushed anything
            link.peers.send(np.array(1), 1)
            toy.step(1.0)  # waits for the other's first push
            toy.step(1.0)
        else:
            link.peers.recv(np.array(0), 0)
            for _ in range(20):  # much slower than the other, in moves of everything that is on its way
                link.comm.progress.advance()
            toy.step(1.0)
            toy.step(1.0)
        toy.sync.finish()

    history = with_servers(comm, 1, work)
    if history is not None:
        assert violations(history, 2, slack) == []
        assert violations(history, 2, slack - 1) != []


@pytest.mark.ranks(5, transports=("threads",))
def test_ten_times_slower_is_slower_and_nothing_else(comm: Communicator) -> None:
    def work(link: Link) -> None:
        toy = Toy(link, slack=2, n=50)
        for step in range(30):
            for _ in range(200 if link.peers.rank == 0 else 20):
                link.comm.progress.advance()
            toy.step(float(step))
        toy.sync.finish()
        np.testing.assert_allclose(toy.weights, 1 - sum(range(30)))

    history = with_servers(comm, 2, work)
    if history is not None:
        assert violations(history, 3, 2) == []


@pytest.mark.ranks(3, transports=("threads",))
def test_an_update_counts_by_its_examples_and_is_clipped_by_its_own_norm(comm: Communicator) -> None:
    def work(link: Link) -> None:
        toy = Toy(link, slack=None, n=2, clip_norm=1.0, lr=0.5)  # 4 numbers: a gradient of g has norm 2 g
        assert toy.sync.divisor(3, 8) == 3
        if link.peers.rank == 0:
            assert toy.step(4.0, own=3, whole=8) == 8.0  # clipped to 0.5 each
            assert toy.step(100.0, own=0, whole=8) == 200.0  # without examples: no update
            assert toy.step(0.25, own=2, whole=8) == 0.5
        link.peers.barrier()
        toy.sync.finish()
        first, second = 0.5, 0.9 * 0.5 + 0.25  # with momentum
        np.testing.assert_allclose(toy.weights, 1 - 0.5 * (first * 3 / 8 + second * 2 / 8), rtol=1e-15)

    with_servers(comm, 1, work, SGD([], lr=99, momentum=0.9))


@pytest.mark.ranks(2, transports=("threads",))
def test_twice_the_rate_is_twice_the_step_and_may_change_on_the_way(comm: Communicator) -> None:
    def work(link: Link) -> None:
        toy = Toy(link, slack=0)
        toy.step(1.0)
        toy.sync.optimizer.lr = 2.0
        toy.step(1.0)
        toy.sync.finish()
        np.testing.assert_allclose(toy.weights, -2.0)

    with_servers(comm, 1, work)


@pytest.mark.parametrize("slack", [0, 1])
@pytest.mark.ranks(3, transports=("threads",))
def test_a_push_that_comes_twice_is_applied_once(comm: Communicator, slack: int) -> None:
    def work(link: Link) -> None:
        toy = Toy(link, slack)
        push = toy.sync.push

        def push_twice(norm: float) -> None:
            """Push, and then all of it once more, parts and all, with numbers that would be seen."""
            push(norm)
            toy.group.gradients[...] = 1000.0
            toy.sync._clock -= 1
            for bucket in toy.sync.buckets:
                toy.sync.gradient_ready(bucket)
            toy.sync._clock += 1
            push(norm)

        if link.peers.rank == 0:
            toy.sync.push = push_twice  # type: ignore[method-assign]
        for step in range(3):
            toy.step(1.0)
            assert toy.sync.versions[0] >= step + 1 - slack
        toy.sync.finish()
        np.testing.assert_allclose(toy.weights, 1 - 3 * 2 / (1 if slack == 0 else 2))

    history = with_servers(comm, 1, work)
    if history is not None:
        assert violations(history, 2, slack) == []
        assert sum(event.kind == "duplicate" for event in history) == 3


@pytest.mark.ranks(2, transports=("threads",))
def test_a_push_that_was_lost_is_noticed(comm: Communicator) -> None:
    link = Link(comm, 1)
    if link.serves:
        with pytest.raises(ValueError, match="worker 0 went on and pushes number 3 after number 1"):
            serve(link, SGD([], lr=1))
    else:
        toy = Toy(link, slack=None)
        toy.step(1.0)
        link.comm.send(note(PUSH, 3, 1.0, 1.0, 1.0), 1, NOTE, purpose="control")


class OffByOne(Clock):
    def may_pull(self, worker: int) -> bool:
        return self.slack is None or self.version >= self.pushes[worker] - self.slack - 1


class Careless(Server):
    """A server that lets workers go one clock too far."""

    clock_rule = OffByOne


@pytest.mark.ranks(3, transports=("threads",))
def test_a_server_that_is_off_by_one_is_caught_by_the_worker(comm: Communicator) -> None:
    def work(link: Link) -> None:
        toy = Toy(link, slack=1)
        if link.peers.rank == 0:
            toy.step(1.0)
            with pytest.raises(
                CommError, match=r"versions \[0\] to a worker at clock 2 with slack 1: expected 1"
            ):
                toy.step(1.0)
        link.peers.barrier()
        toy.sync.finish()

    history = with_servers(comm, 1, work, server=Careless)
    if history is not None:
        assert "was given version 0, expected 1" in violations(history, 2, 1)[0]


class Torn(Server):
    """A server that sends the weights themselves and not a copy."""

    def _answer(self, worker: int) -> None:
        stock = self.stock_of[worker]
        stock.answer = [shard.weights for shard in stock.shards]
        super()._answer(worker)


@pytest.mark.parametrize("server", [Server, Torn])
@pytest.mark.ranks(3, transports=("threads",))
def test_weights_are_never_half_old_and_half_new(comm: Communicator, server: type[Server]) -> None:
    def work(link: Link) -> None:
        # Two parts, each too large to be sent before somebody receives it.
        toy = Toy(link, slack=None, n=10_000, bytes_per_bucket=1)
        if link.peers.rank == 0:  # takes one part, lets the other worker push, and takes the other part
            link.comm.send(note(PULL, 0), 2, NOTE, purpose="control")
            answer, parts = np.empty(2), [np.empty(10_000), np.empty(10_000)]
            link.comm.recv(answer, 2, REPLY, purpose="control")
            link.comm.recv(parts[0], 2, DATA, purpose="weights")
            link.peers.barrier()
            link.peers.barrier()
            link.comm.recv(parts[1], 2, DATA, purpose="weights")
            assert {*parts[0], *parts[1]} == ({1.0} if server is Server else {1.0, 0.5})
        else:
            link.peers.barrier()
            toy.step(1.0)
            link.peers.barrier()
        toy.sync.finish()

    with_servers(comm, 1, work, server=server)


class Halves(Module):
    """One stage of two: both use `tied`, which has its place at both ends; `own` is its own."""

    def __init__(self, stages: tuple[int, ...], mesh: Mesh | None) -> None:
        self.own = [Linear(16, 6) for _ in stages]
        self.tied = Linear(6, CLASSES)
        for name in ("weight", "bias") if mesh is not None else ():
            parameter = getattr(self.tied, name)
            parameter.place(Placement(parameter.shape, repeated=("ends",), partial=("ends",)))
        for stage, layer in zip(stages, self.own, strict=True):
            layer.initialize(seed=stage, dtype=np.float64)
        self.tied.initialize(seed=9, dtype=np.float64)

    def forward(self, x: np.ndarray) -> Any:
        return ops.concatenate([self.tied(ops.relu(own(Tensor(x)))) for own in self.own])


def train_halves(
    replicas: int, replica: int, stages: tuple[int, ...], mesh: Mesh, make_sync: Callable[..., Sync]
) -> dict[str, Any]:
    """Train a model whose loss is the sum of its stages' losses, on the rows of one replica."""
    model = Halves(stages, mesh if len(stages) == 1 else None)
    groups = flatten(model)
    sync = make_sync(mesh, groups, rule(groups))

    def loss_of_stages(outputs: Tensor, labels: np.ndarray, count: int) -> Tensor:
        return ops.cross_entropy(outputs, np.tile(labels, len(stages)), count)

    whole = Whole(model, loss_of_stages, sync)
    norms, inputs, labels = [], images().reshape(EXAMPLES, 16), labels_of("mlp", images())
    for epoch in range(5):
        for rows, count in loader.read(EXAMPLES, 7, 0, epoch, replica, replicas):
            divisor = sync.divisor(len(rows), count)
            whole.forward_backward(Batch(inputs[rows], labels[rows], divisor))
            norms.append(sync.step())
    sync.finish()
    weights = {name: parameter.data.copy() for name, parameter in model.named_parameters()}
    return {"norms": norms, **weights}


@pytest.fixture
def one_stage_after_another() -> dict[str, Any]:
    mesh = Mesh(world(), data=1)
    return train_halves(1, 0, (0, 1), mesh, lambda *args: DataParallel(*args, 0.3))


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.ranks(5, 6, transports=("threads",))
def test_replicas_that_are_spread_have_shards_for_each_of_their_ranks(
    comm: Communicator, servers: int, one_stage_after_another: dict[str, Any]
) -> None:
    reference = one_stage_after_another
    replicas = (comm.size - servers) // 2
    everyone = comm.split(0 if comm.rank < 2 * replicas + servers else None)
    if everyone is None:
        return

    def work(link: Link) -> None:
        mesh = Mesh(link.peers, data=replicas, pipe=2)
        mesh.name_part("ends", "pipe", (0, 1))
        replica, stage = mesh.coordinates["data"], mesh.coordinates["pipe"]

        def make(mesh: Mesh, groups: Any, optimizer: Optimizer) -> Sync:
            return ParameterServer(mesh, groups, optimizer, link, 0.3, slack=0, bytes_per_bucket=100)

        mine = train_halves(replicas, replica, (stage,), mesh, make)
        np.testing.assert_allclose(mine["norms"], reference["norms"], rtol=1e-12)
        for name, weights in mine.items():
            if name != "norms":
                wanted = reference[name.replace("own.0", f"own.{stage}")]
                assert abs(weights - wanted).max() <= 1e-12 * abs(wanted).max()

        # Without a bound too, the copies of what is tied stay one.
        def hurry(mesh: Mesh, groups: Any, optimizer: Optimizer) -> Sync:
            return ParameterServer(mesh, groups, optimizer, second, None, slack=None)

        second = Link(everyone, 2 * replicas)
        mine = train_halves(replicas, replica, (stage,), mesh, hurry)
        copies = link.peers.all_gather(mine["tied.weight"][None])
        assert (copies == copies[0]).all()

    link = Link(everyone, 2 * replicas)
    if link.serves:
        serve(link, rule())
        serve(Link(everyone, 2 * replicas), rule())
    else:
        work(link)


class Recorded(ParameterServer):
    """Write down, in order, the nodes of the tape and what was pushed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.order: list[str] = []
        super().__init__(*args, **options)

    def tick(self) -> None:
        self.order.append("node")
        super().tick()

    def _send(self, x: np.ndarray, server: int, tag: int, purpose: str) -> None:
        self.order.append(purpose)
        super()._send(x, server, tag, purpose)


@pytest.mark.ranks(3, transports=("threads",))
def test_gradients_leave_while_backward_still_runs(comm: Communicator) -> None:
    def work(link: Link) -> None:
        model = MODELS["mlp"][0]()
        groups = flatten(model)
        mesh = Mesh(link.peers, data=1)
        sync = Recorded(mesh, groups, rule(groups), link, bytes_per_bucket=1)
        sync.order.clear()
        count = sync.divisor(EXAMPLES, EXAMPLES)
        Whole(model, whole_loss, sync).forward_backward(Batch(images(), np.zeros(EXAMPLES, np.int64), count))
        last_node = max(i for i, what in enumerate(sync.order) if what == "node")
        pushed = [i for i, what in enumerate(sync.order) if what == "gradient"]
        assert len(pushed) == 2 * len(sync.buckets) == 8  # to two servers
        assert sum(i < last_node for i in pushed) >= 4, sync.order
        sync.step()
        sync.finish()

    with_servers(comm, 2, work)


@pytest.mark.ranks(3, transports=("threads",))
def test_a_worker_that_forgets_to_finish_hangs_nobody(comm: Communicator) -> None:
    link = Link(comm, 2)
    if link.serves:
        with pytest.raises(DeadlockError, match="rank 1 has left"):
            serve(link, SGD([], lr=1.0))
        return
    toy = Toy(link, slack=0)
    toy.step(1.0)
    if link.peers.rank == 0:
        with pytest.raises(DeadlockError, match="rank 1 has left"):
            toy.sync.finish()


@pytest.mark.ranks(3, transports=("threads",))
def test_bytes_are_those_that_the_docstring_says(comm: Communicator) -> None:
    n = 8 * 2 * 10_001

    def work(link: Link) -> None:
        toy = Toy(link, slack=0, n=10_001)
        before = link.comm.counters
        for _ in range(3):
            toy.step(1.0)
        sent = {purpose: np.subtract(after, before[purpose]) for purpose, after in link.comm.counters.items()}
        buckets = len(toy.sync.buckets)
        assert sent["gradient"].tolist() == [3 * buckets * link.servers, 3 * n]
        assert sent["control"].tolist() == [
            3 * link.servers * (buckets + 2),
            3 * link.servers * (buckets + 2) * 40,
        ]
        assert sent["weights"].tolist() == [0, 0]
        toy.sync.finish()

    before = comm.counters["weights"]
    if with_servers(comm, 2, work) is not None:
        assert comm.counters["weights"][1] - before[1] == 4 * n // 2


@pytest.mark.parametrize("optimizer", [SGD([], lr=0.1, momentum=0.9), AdamW([], lr=0.1)])
@pytest.mark.ranks(3, transports=("threads",))
def test_workers_hold_no_optimizer_state(comm: Communicator, optimizer: Optimizer) -> None:
    def work(link: Link) -> None:
        toy = Toy(link, slack=0)
        toy.step(1.0)
        assert toy.sync.optimizer._state is None
        toy.sync.finish()

    with_servers(comm, 1, work, optimizer)


@pytest.mark.ranks(1, 3, transports=("threads",))
def test_a_link_needs_workers_and_servers(comm: Communicator) -> None:
    ranks = "1 rank" if comm.size == 1 else "3 ranks"
    with pytest.raises(
        UserError, match=f"{ranks} cannot be {comm.size} workers? and 0 servers: leave at least"
    ):
        Link(comm, comm.size)
    with pytest.raises(
        UserError, match=f"{ranks} cannot be 0 workers and {comm.size} servers?: leave at least"
    ):
        Link(comm, 0)
    with pytest.raises(UserError, match="cannot be -1 workers and"):
        Link(comm, -1)


@pytest.mark.ranks(2, transports=("threads",))
def test_wrong_uses_get_a_sentence(comm: Communicator) -> None:
    link = Link(comm, 1)
    if link.serves:
        groups = flatten(Linear(1, 1).initialize())
        with pytest.raises(ValueError, match="is not of the workers of the link"):
            ParameterServer(Mesh(link.peers, data=1), groups, SGD(groups, lr=1.0), link)
        serve(link, SGD([], lr=1.0))
    else:
        with pytest.raises(ValueError, match="rank 0 is a worker and cannot serve"):
            serve(link, SGD([], lr=1.0))
        with pytest.raises(UserError, match="the slack is -2; expected"):
            Toy(link, slack=-2)
        toy = Toy(link, slack=1)
        toy.step(1.0)
        with pytest.raises(ValueError, match="nobody said how many targets this step has"):
            toy.sync.step()
        toy.sync.finish()


@pytest.mark.ranks(3, transports=("threads",))
def test_workers_with_other_options_are_refused(comm: Communicator) -> None:
    link = Link(comm, 2)
    if link.serves:
        with pytest.raises(
            UserError, match="worker 1 has slack 1, and worker 0 0: give all workers the same"
        ):
            serve(link, SGD([], lr=1.0))
    else:
        Toy(link, slack=link.peers.rank)
