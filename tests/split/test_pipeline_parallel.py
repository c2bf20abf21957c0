"""Pipeline parallel training equals one process: losses, gradient norms, weights; and what it sends and keeps."""

import functools
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minidist.autograd import Tensor, ops
from minidist.comm import Communicator, Mesh, hub, world
from minidist.comm.events import Listener
from minidist.data import loader
from minidist.errors import UserError
from minidist.models import CNN, GPT, MLP
from minidist.nn import Bucket, Linear, Module, Piece, flatten
from minidist.optim import SGD
from minidist.random import uniform
from minidist.split import schedules
from minidist.split.gather import whole_weights
from minidist.split.pipeline_parallel import PipelineParallel, cut
from minidist.split.replica import Batch
from minidist.split.schedule_times import peak_live
from minidist.split.stages import partition
from minidist.split.tensor_parallel import parallelize
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel

STEPS = 20
EXAMPLES = 23  # prime, so nothing divides evenly
CLASSES = 5
SIZES = [16, 6, 5, 7, 6, 5, 6, 8, CLASSES]  # 8 pieces: enough for 4 ranks with 2 chunks


class Frozen(MLP):
    """A frozen first layer, a frozen layer and a frozen bias beside trainable ones."""

    def __init__(self, seed: int | None = 0) -> None:
        super().__init__(SIZES, None)
        for weight in (*self.layers[0].parameters(), self.layers[3].weight, self.layers[-1].bias):
            weight.requires_grad = False
        self.initialize(seed, np.float64)


class Deaf(Module):
    """A middle piece whose output ignores its input, but not how many examples there are."""

    def __init__(self, seed: int | None = 0) -> None:
        self.first, self.middle, self.last = Linear(16, 3), Linear(3, 4), Linear(4, CLASSES)
        self.initialize(seed, np.float64)

    def forward(self, x: Any) -> Any:
        for piece in self.pieces():
            x = piece.run(x)
        return x

    def pieces(self) -> list[Piece]:
        return [
            Piece(lambda x: self.first(Tensor(x.reshape(len(x), -1))), (self.first,)),
            Piece(lambda x: self.middle(Tensor(np.ones((len(x), 3)))), (self.middle,)),
            Piece(self.last, (self.last,)),
        ]


def images() -> np.ndarray:
    return uniform(1, "images", 0, 0, EXAMPLES * 16).reshape(EXAMPLES, 1, 4, 4)


def tokens() -> np.ndarray:
    return (uniform(2, "tokens", 0, 0, EXAMPLES * 3) * CLASSES).astype(np.int64).reshape(EXAMPLES, 3)


MODELS: dict[str, tuple[Callable[..., Module], Callable[[], np.ndarray]]] = {
    "mlp": (lambda seed=0: MLP(SIZES, seed, np.float64), images),
    "cnn": (lambda seed=0: CNN((1, 4, 4), CLASSES, (2, 3), seed, np.float64), images),
    "gpt": (lambda seed=0: GPT(CLASSES, 3, 2, 4, 2, seed, np.float64), tokens),
    "frozen": (Frozen, images),
    "deaf": (Deaf, images),
}


def data_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    inputs = MODELS[name][1]()
    return inputs, inputs if name == "gpt" else (np.arange(EXAMPLES) * 3) % CLASSES


def train(
    comm: Communicator,
    name: str,
    pipe: int,
    chunks: int = 1,
    batch: int = 7,
    clip: float | None = None,
    steps: int = STEPS,
    tensor: int = 1,
    **how: Any,
) -> dict[str, Any] | None:
    """Train on data x pipe x tensor ranks; give the histories, and the whole weights on the first rank of a replica."""
    mesh = Mesh(comm, data=comm.size // pipe // tensor, pipe=pipe, tensor=tensor)
    model, loss = MODELS[name][0](seed=None), ops.cross_entropy
    if tensor > 1:
        loss, how["argmax"] = parallelize(model, mesh, how.pop("sequence", False))
    stage = cut(model, mesh, chunks)
    stage.initialize(0, np.float64)
    groups = flatten(stage)
    optimizer = SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01)
    sync = DataParallel(mesh, groups, optimizer, clip, bytes_per_bucket=200)
    replica = PipelineParallel(stage, loss, sync, mesh, **how)
    losses, norms = run(comm, replica, name, batch, steps, mesh.coordinates["data"], mesh.axes["data"])
    sync.finish()
    weights = whole_weights(mesh, groups)
    return None if weights is None else {"losses": losses, "norms": norms, "weights": weights}


def run(
    comm: Communicator, replica: Any, name: str, batch: int, steps: int, place: int = 0, places: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    inputs, labels = data_of(name)
    losses, norms = [], []
    for epoch in range(steps):
        for rows, count in loader.read(EXAMPLES, batch, 0, epoch, place, places):
            if len(losses) == steps:
                break
            loss = replica.forward_backward(Batch(inputs[rows], labels[rows], count * labels[0].size))
            losses.append(float(comm.all_reduce(np.array(loss))))
            norms.append(replica.sync.step())
    return np.array(losses), np.array(norms)


@functools.cache
def one_process(name: str, batch: int = 7, clip: float | None = None, steps: int = STEPS) -> dict[str, Any]:
    model = MODELS[name][0]()
    groups = flatten(model)
    sync = DataParallel(
        Mesh(world(), data=1), groups, SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01), clip
    )
    losses, norms = run(world(), Whole(model, ops.cross_entropy, sync), name, batch, steps)
    return {"losses": losses, "norms": norms, "weights": {n: p.data for n, p in model.named_parameters()}}


def assert_equal(many: dict[str, Any] | None, one: dict[str, Any]) -> None:
    if many is None:
        return
    for history in ("losses", "norms"):
        np.testing.assert_allclose(many[history], one[history], rtol=1e-12, atol=0)
    assert set(many["weights"]) == set(one["weights"])
    largest = max(abs(weight).max() for weight in one["weights"].values())
    for name, weight in one["weights"].items():
        assert abs(many["weights"][name] - weight).max() <= 1e-12 * largest, name


# (model, the options of one process, the others)
CASES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("mlp", {}, {}),
    ("mlp", {}, {"chunks": 2, "microbatches": 5}),
    ("mlp", {"clip": 0.05}, {"microbatches": 2, "accumulate": 2}),
    ("mlp", {"batch": 2}, {"microbatches": 3}),  # fewer examples than microbatches, or than replicas
    ("gpt", {"clip": 0.5}, {"microbatches": 5, "recompute": True}),
    ("gpt", {}, {"microbatches": 1}),
    ("frozen", {"batch": 3}, {"chunks": 2, "accumulate": 2, "microbatches": 2}),
)
SMALL: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (  # of few pieces
    ("cnn", {}, {"microbatches": 3}),
    ("deaf", {}, {"microbatches": 2}),
    ("deaf", {}, {"microbatches": 2, "recompute": True}),
)
TWO: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("gpt", {}, {"chunks": 2, "microbatches": 3}),  # pipe=1: both uses of the tied weight on one rank
)


EVERYTHING = CASES + SMALL + TWO


def cases(pipe: int, turn: int) -> tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]:
    """Give a quarter of the cases that so many ranks have pieces for: each schedule meets each case on some ranks."""
    return (CASES + SMALL * (pipe < 4) + TWO * (pipe < 3))[turn % 4 :: 4]


@pytest.fixture
def references() -> dict[str, Any]:
    return {str((name, one)): one_process(name, **one) for name, one, _ in EVERYTHING}


@pytest.mark.parametrize(("turn", "schedule"), list(enumerate(schedules.SCHEDULES)))
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_training_equals_one_process(
    comm: Communicator, turn: int, schedule: str, references: dict[str, Any]
) -> None:
    for name, one, many in cases(comm.size, turn + comm.size):
        result = train(comm, name, comm.size, schedule=schedule, **one, **many)
        assert_equal(result, references[str((name, one))])


TWO_AXES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("gpt", {"clip": 0.5, "steps": 10}, {"microbatches": 3}),
    ("frozen", {"batch": 3}, {"chunks": 2, "accumulate": 2, "microbatches": 2}),
    (
        "mlp",
        {"batch": 1, "steps": 10},
        {"microbatches": 2, "recompute": True},
    ),  # one of the replicas never has an example
)


@pytest.fixture
def references_of_two_axes() -> dict[str, Any]:
    return {str((name, one)): one_process(name, **one) for name, one, _ in TWO_AXES}


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
@pytest.mark.ranks(4, transports=("threads",))
def test_training_with_two_replicas_of_two_stages_equals_one_process(
    comm: Communicator, schedule: str, references_of_two_axes: dict[str, Any]
) -> None:
    for name, one, many in TWO_AXES:
        result = train(comm, name, 2, schedule=schedule, **one, **many)
        assert_equal(result, references_of_two_axes[str((name, one))])


@pytest.fixture
def short_gpt() -> dict[str, Any]:
    return one_process("gpt", steps=6)


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
@pytest.mark.ranks(4, transports=("threads",))
def test_stages_that_are_shared_out_by_tensors_equal_one_process(
    comm: Communicator, schedule: str, short_gpt: dict[str, Any]
) -> None:
    for how in ({"recompute": True}, {"sequence": True}):
        result = train(comm, "gpt", 2, tensor=2, steps=6, schedule=schedule, microbatches=3, **how)
        assert_equal(result, short_gpt)


@pytest.mark.parametrize("schedule", list(schedules.SCHEDULES))
@pytest.mark.ranks(2, 3, transports=("threads",))
def test_no_schedule_relies_on_a_send_being_buffered(
    comm: Communicator, schedule: str, short_gpt: dict[str, Any]
) -> None:
    buffered = hub.EAGER
    try:
        hub.EAGER = -1  # now every send waits for its receiver
        chunks = 2 if comm.size == 2 else 1
        result = train(comm, "gpt", comm.size, chunks, steps=6, schedule=schedule, microbatches=5)
        assert_equal(result, short_gpt)
        comm.barrier()
    finally:
        hub.EAGER = buffered


@pytest.mark.ranks(2, 4, transports=("mpi",))
def test_training_on_mpi_with_synchronous_sends_equals_one_process(
    comm: Communicator, short_gpt: dict[str, Any]
) -> None:
    endpoint = type(comm.endpoint)
    send = endpoint.isend

    def isend(self: Any, array: np.ndarray, dest: int, tag: int, synchronous: bool = True) -> Any:
        return send(self, array, dest, tag, True)

    endpoint.isend = isend  # type: ignore[method-assign]
    try:
        for schedule in schedules.SCHEDULES:
            result = train(comm, "gpt", comm.size, steps=6, schedule=schedule, microbatches=3)
            assert_equal(result, short_gpt)
        comm.barrier()
    finally:
        endpoint.isend = send  # type: ignore[method-assign]


def small(
    comm: Communicator,
    name: str = "mlp",
    chunks: int = 1,
    kind: type[PipelineParallel] = PipelineParallel,
    **how: Any,
) -> Any:
    """Make a replica over all ranks that can be looked at."""
    mesh = Mesh(comm, data=1, pipe=comm.size)
    stage = cut(MODELS[name][0](seed=None), mesh, chunks)
    stage.initialize(0, np.float64)
    groups = flatten(stage)
    return kind(stage, ops.cross_entropy, Recorded(mesh, groups, SGD(groups, lr=0.1)), mesh, **how)


class Recorded(DataParallel):
    """Write down, in order, what a replica says at the seam."""

    def __init__(self, mesh: Mesh, groups: Any, optimizer: Any) -> None:
        self.order: list[Any] = []
        super().__init__(mesh, groups, optimizer, bytes_per_bucket=1)

    def tick(self) -> None:
        self.order.append("node")

    def gradient_ready(self, bucket: Bucket) -> None:
        self.order.append((bucket.index, bucket.gradients.copy()))
        super().gradient_ready(bucket)


@pytest.mark.parametrize("schedule", list(schedules.SCHEDULES))
@pytest.mark.parametrize(("name", "chunks"), [("mlp", 2), ("gpt", 1)])
@pytest.mark.ranks(1, 2, 4, transports=("threads",))
def test_a_bucket_is_ready_once_a_step_when_its_gradient_is_whole_and_backward_still_runs(
    comm: Communicator, schedule: str, name: str, chunks: int
) -> None:
    replica = small(comm, name, chunks, schedule=schedule, microbatches=3, accumulate=2)
    inputs, labels = data_of(name)
    for _ in range(2):
        replica.sync.order.clear()
        replica.forward_backward(Batch(inputs[:8], labels[:8], labels[:8].size))
        said = [row for row in replica.sync.order if row != "node"]
        assert sorted(index for index, _ in said) == list(range(len(replica.sync.buckets)))
        last_node = max(i for i, row in enumerate(replica.sync.order) if row == "node")
        early = sum(row != "node" for row in replica.sync.order[:last_node])
        assert early >= len(said) - 4  # the last node may finish a layer: all but what it makes leave before
        for index, gradients in said:
            bucket = replica.sync.buckets[index]
            if bucket.group.axes == ("data",):  # a tied weight's is being summed over two stages by now
                np.testing.assert_array_equal(gradients, bucket.gradients)
        replica.sync.combine()


@pytest.mark.parametrize("schedule", list(schedules.SCHEDULES))
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_each_border_is_crossed_by_one_activation_and_one_gradient_of_each_microbatch(
    comm: Communicator, schedule: str
) -> None:
    for chunks in (1, 2):
        replica = small(comm, "mlp", chunks, schedule=schedule, microbatches=3)
        before = comm.counters["activation"]
        inputs, labels = data_of("mlp")
        replica.forward_backward(Batch(inputs[:7], labels[:7], 7))
        messages, nbytes = (a - b for a, b in zip(comm.counters["activation"], before, strict=True))
        total = comm.all_reduce(np.array([messages, nbytes])).tolist()
        runs = [widths[-1] for widths in borders(comm, chunks)]
        assert total == [2 * 3 * len(runs), 2 * 7 * 8 * sum(runs)]
        replica.sync.combine()


@pytest.mark.parametrize("schedule", list(schedules.SCHEDULES))
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_a_rank_keeps_as_many_microbatches_as_its_schedule_says(comm: Communicator, schedule: str) -> None:
    class Watching(PipelineParallel):
        most = 0

        def tick(self) -> None:
            self.most = max(self.most, len(self._live) + len(self._deferred))
            super().tick()

    inputs, labels = data_of("mlp")
    for chunks in (1, 2):
        replica = small(comm, "mlp", chunks, Watching, schedule=schedule, microbatches=6)
        replica.forward_backward(Batch(inputs, labels, EXAMPLES))
        program = replica.program(replica.schedule, 6)
        # The one whose forward or backward is running at the moment is not on the list.
        assert replica.most + 1 == peak_live(program)
        replica.sync.combine()


class Writing(PipelineParallel, Listener):
    """Write down, in order, what is computed and what is sent and received."""

    order: list[str]

    def forward(self, m: int, chunk: int) -> None:
        self.order.append("forward")
        super().forward(m, chunk)

    def before(self, event: Any) -> None:
        self.order.append(event.operation)


@pytest.mark.ranks(2, transports=("threads",))
def test_a_receive_is_posted_before_the_computation_in_front_of_it(comm: Communicator) -> None:
    replica = small(comm, "mlp", kind=Writing, schedule="gpipe", microbatches=3)
    replica.order = []
    replica.comm.listeners.append(replica)
    inputs, labels = data_of("mlp")
    replica.forward_backward(Batch(inputs, labels, EXAMPLES))
    replica.sync.combine()
    if comm.rank == 1:
        assert replica.order[:7] == ["recv", "recv", "forward", "recv", "forward", "forward", "send"]


def borders(comm: Communicator, chunks: int) -> list[list[int]]:
    """Give the widths of the layers of all virtual stages but the last."""
    model = MLP(SIZES, None)
    costs = [float(sum(p.size for p in piece.parameters())) for piece in model.pieces()]
    return [SIZES[1:][run] for run in partition(costs, comm.size * chunks)[:-1]]


@pytest.mark.parametrize("name", ["mlp", "gpt", "cnn"])
@pytest.mark.ranks(1, 2, 3, transports=("threads",))
def test_recomputed_activations_give_the_same_gradients_to_the_bit(comm: Communicator, name: str) -> None:
    inputs, labels = data_of(name)
    found = []
    for recompute in (False, True):
        replica = small(comm, name, recompute=recompute)
        loss = replica.forward_backward(Batch(inputs, labels, labels.size))
        replica.sync.combine()
        found.append([loss, *(group.gradients.tolist() for group in replica.sync.groups)])
    assert found[0] == found[1]


def test_recomputation_keeps_each_microbatch_s_input_and_the_inside_of_one() -> None:
    width, layers, examples, pieces = 64, 8, 256, 4

    def peak(recompute: bool) -> int:
        mesh = Mesh(world(), data=1, pipe=1)
        stage = cut(MLP([width] * layers + [CLASSES], None), mesh)
        stage.initialize(0, np.float64)
        groups = flatten(stage)
        sync = DataParallel(mesh, groups, SGD(groups, lr=0.1))
        replica = PipelineParallel(
            stage, ops.cross_entropy, sync, mesh, "gpipe", microbatches=pieces, recompute=recompute
        )
        batch = Batch(np.ones((examples, width)), np.zeros(examples, np.int64), examples)
        replica.forward_backward(batch)
        tracemalloc.start()
        try:
            replica.forward_backward(batch)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    inside = examples * width * 8 * (layers - 1)  # bytes of the activations of the whole batch
    assert peak(recompute=False) >= inside
    assert peak(recompute=True) <= inside / pieces * 2  # and the gradients on their way


@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_a_stage_has_the_names_and_order_of_the_whole_model_and_memory_for_its_own_alone(
    comm: Communicator,
) -> None:
    mesh = Mesh(comm, data=1, pipe=comm.size)
    model, whole = MODELS["gpt"][0](seed=None), MODELS["gpt"][0]()
    stage = cut(model, mesh)
    stage.initialize(0, np.float64)
    names = [name for name, _ in stage.named_parameters()]
    assert names == [name for name, _ in whole.named_parameters() if name in names]
    for name, parameter in model.named_parameters():
        if name in names:
            np.testing.assert_array_equal(parameter.data, dict(whole.named_parameters())[name].data)
        else:
            assert set(parameter.array.strides) == {0}, f"{name} has memory"
    tied = model.tokens.weight.placement
    if comm.size == 1:
        assert tied is None
    elif comm.size == 2:
        assert (tied.repeated, tied.partial) == (("pipe",), ("pipe",))
    else:
        assert tied.repeated == tied.partial == (f"stages 0+{comm.size - 1}",)
    everyone = comm.all_gather(np.array([len(names)]))
    assert everyone.sum() == len(list(whole.named_parameters())) + (comm.size > 1)
    stage.eval()
    assert not any(module.training for module in model.modules())


@pytest.mark.ranks(2, transports=("threads",))
def test_a_model_that_was_drawn_already_gives_back_what_lives_elsewhere(comm: Communicator) -> None:
    model = MODELS["mlp"][0]()
    stage = cut(model, Mesh(comm, data=1, pipe=2))
    here = set(stage.parameters())
    assert all(bool(set(p.array.strides) - {0}) == (p in here) for p in model.parameters())


@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_predictions_come_out_of_the_last_stage(comm: Communicator) -> None:
    for name, chunks in (("mlp", 2), ("gpt", 1)):
        inputs, _ = data_of(name)
        expected = MODELS[name][0]()(inputs).data.argmax(-1)
        for recompute in (False, True):
            replica = small(comm, name, chunks, recompute=recompute)
            for rows in (slice(None), slice(2)):
                classes = replica.predict(inputs[rows])
                if comm.rank < comm.size - 1:
                    assert classes is None
                else:
                    np.testing.assert_array_equal(classes, expected[rows])


@pytest.mark.ranks(2, transports=("threads",))
def test_a_schedule_that_sends_the_wrong_microbatch_is_refused_before_it_runs(comm: Communicator) -> None:
    def wrong(stages: int, rank: int, microbatches: int, chunks: int) -> Any:
        order = list(schedules.gpipe(stages, rank, microbatches, chunks))
        if rank == 0:
            order[1] = schedules.Forward(0)  # once more, in place of microbatch 1
        return order

    replica = small(comm, "mlp")
    replica.schedule = wrong
    inputs, labels = data_of("mlp")
    before = comm.counters
    with pytest.raises(ValueError, match="cannot come to its end"):
        replica.forward_backward(Batch(inputs, labels, 23))
    assert comm.counters == before


@pytest.mark.ranks(2, transports=("threads",))
def test_no_two_messages_of_a_run_have_one_tag(comm: Communicator) -> None:
    replica = small(comm, "mlp", 2)
    replica._batches = [Batch(np.empty(0), np.empty(0), 1)] * 5
    program = replica.program(replica.schedule, 5)
    messages = [i for i in program if isinstance(i, schedules.Send | schedules.Receive)]
    assert len({replica.tag(message) for message in messages}) == len(messages)


def test_wrong_options_are_refused_in_one_sentence() -> None:
    mesh = Mesh(world(), data=1, pipe=1)
    with pytest.raises(
        UserError, match=r"schedule is '2f2b', expected one of 'naive', 'gpipe', '1f1b', 'zero-bubble'"
    ):
        small(world(), schedule="2f2b")
    with pytest.raises(UserError, match="microbatches is 0, expected at least 1"):
        small(world(), microbatches=0)
    with pytest.raises(
        UserError,
        match=r"pipe=1 with 4 chunks makes 4 stages, and this model has 3 pieces to share out; "
        r"try pipe=1 with 3 chunks or pipe=1 with 2 chunks, or a deeper model",
    ):
        cut(MODELS["cnn"][0](seed=None), mesh, chunks=4)


@pytest.mark.ranks(4, transports=("threads",))
def test_more_stages_than_pieces_is_one_sentence_with_the_nearest_choices(comm: Communicator) -> None:
    with pytest.raises(
        UserError,
        match=r"pipe=4 with 1 chunk makes 4 stages, and this model has 3 pieces .* try pipe=3 with 1 chunk",
    ):
        cut(MODELS["cnn"][0](seed=None), Mesh(comm, pipe=4))
