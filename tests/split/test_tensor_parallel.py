"""Tensor parallel training equals one process, sends what Megatron's formula says, and refuses what it cannot share."""

import functools
import hashlib
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minidist.autograd import Tensor, ops
from minidist.comm import Communicator, Mesh, world
from minidist.comm.events import Event, Listener
from minidist.data import loader
from minidist.errors import UserError
from minidist.models import CNN, GPT, MLP
from minidist.nn import Module, Placement, flatten
from minidist.optim import SGD
from minidist.random import normal, uniform
from minidist.split.gather import whole_weights
from minidist.split.replica import Batch, whole_loss
from minidist.split.tensor_loss import split_argmax, split_cross_entropy
from minidist.split.tensor_parallel import parallelize
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel

STEPS = 20
EXAMPLES = 23  # prime, so nothing divides evenly
TIME = 5


def gpt(vocabulary: int, frozen: tuple[str, ...] = ()) -> GPT:
    return freeze(GPT(vocabulary, TIME, layers=2, width=12, heads=4, seed=None), frozen)


def freeze(model: Any, names: tuple[str, ...]) -> Any:
    for name, parameter in model.named_parameters():
        if name in names:
            parameter.requires_grad = False
    return model


# A declared model, and the number of its classes.
MODELS: dict[str, tuple[Callable[[], Module], int]] = {
    "mlp": (lambda: MLP([16, 8, 7, 5], seed=None), 5),
    "mlp with whole outputs": (lambda: MLP([16, 8, 7, 9, 5], seed=None), 5),
    "frozen mlp": (lambda: freeze(MLP([16, 8, 7, 5], seed=None), ("layers.1.weight", "layers.2.bias")), 5),
    "gpt": (lambda: gpt(5), 5),
    "gpt with a vocabulary of 97": (lambda: gpt(97), 97),
    "frozen gpt": (
        lambda: gpt(
            7, ("tokens.weight", "blocks.0.norm1.gain", "blocks.1.narrow.bias", "blocks.1.widen.weight")
        ),
        7,
    ),
}
Case = tuple[int, int, float | None]  # batch, accumulate, clip_norm
# The batch of 1 leaves a replica without examples where there are two, and 23 examples leave a ragged last batch of 3.
CASES: tuple[Case, Case] = ((4, 2, 0.05), (1, 1, None))


def examples(name: str) -> tuple[np.ndarray, np.ndarray]:
    classes = MODELS[name][1]
    if "gpt" in name:
        tokens = (uniform(2, "tokens", 0, 0, EXAMPLES * (TIME + 1)) * classes).astype(np.int64)
        tokens = tokens.reshape(EXAMPLES, TIME + 1)
        return tokens[:, :-1], tokens[:, 1:]
    return uniform(1, "images", 0, 0, EXAMPLES * 16).reshape(EXAMPLES, 16), np.arange(EXAMPLES) * 3 % classes


def build(mesh: Mesh, name: str, case: Case, sequence: bool = False) -> Whole:
    """Put together a replica on the ranks of a mesh, in the order in which train does."""
    _, accumulate, clip = case
    model = MODELS[name][0]()
    loss, argmax = parallelize(model, mesh, sequence)
    model.initialize(seed=4, dtype=np.float64)
    groups = flatten(model)
    sync = DataParallel(mesh, groups, SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01), clip, 300)
    return Whole(model, loss, sync, accumulate, argmax)


def train(replica: Whole, name: str, batch: int, steps: int = STEPS) -> dict[str, Any]:
    assert isinstance(replica.sync, DataParallel)
    mesh = replica.sync.mesh
    inputs, labels = examples(name)
    losses, norms = [], []
    for epoch in range(steps):
        for rows, count in loader.read(
            EXAMPLES, batch, 0, epoch, mesh.coordinates["data"], mesh.size("data")
        ):
            if len(losses) == steps:
                break
            loss = replica.forward_backward(Batch(inputs[rows], labels[rows], count * labels[0].size))
            losses.append(float(mesh.everyone.all_reduce(np.array(loss))))
            norms.append(replica.sync.step())
    return {
        "losses": np.array(losses),
        "norms": np.array(norms),
        "weights": whole_weights(mesh, replica.sync.groups),
        "classes": replica.predict(inputs),
    }


@functools.cache
def one_process(name: str, batch: int, clip: float | None) -> dict[str, Any]:
    """Train as it would be without any parallelism, here in the process of pytest."""
    model = MODELS[name][0]()
    model.initialize(seed=4, dtype=np.float64)
    groups = flatten(model)
    sync = DataParallel(Mesh(world(), data=1), groups, SGD(groups, 0.1, 0.9, 0.01), clip)
    return train(Whole(model, whole_loss, sync), name, batch)


@pytest.fixture
def references(name: str) -> dict[Case, dict[str, Any]]:
    return {case: one_process(name, case[0], case[2]) for case in CASES}


def assert_equal(many: dict[str, Any], one: dict[str, Any]) -> None:
    for history in ("losses", "norms"):
        np.testing.assert_allclose(many[history], one[history], rtol=1e-12, atol=0)
    np.testing.assert_array_equal(many["classes"], one["classes"])
    if many["weights"] is not None:
        assert many["weights"].keys() == one["weights"].keys()
        largest = max(abs(weight).max() for weight in one["weights"].values())
        for parameter, weight in one["weights"].items():
            assert many["weights"][parameter].shape == weight.shape
            assert abs(many["weights"][parameter] - weight).max() <= 1e-12 * largest, parameter


@pytest.mark.parametrize("name", [name for name in MODELS if "mlp" in name])
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_training_an_mlp_equals_one_process(
    comm: Communicator, name: str, references: dict[Case, dict[str, Any]]
) -> None:
    mesh, case = Mesh(comm, data=1, tensor=comm.size), CASES[0]
    assert_equal(train(build(mesh, name, case), name, case[0]), references[case])


@pytest.mark.parametrize(("name", "sequence"), [("gpt", False), ("gpt with a vocabulary of 97", True)])
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_training_a_gpt_equals_one_process(
    comm: Communicator, name: str, sequence: bool, references: dict[Case, dict[str, Any]]
) -> None:
    mesh, case = Mesh(comm, data=1, tensor=comm.size), CASES[0]
    assert_equal(train(build(mesh, name, case, sequence), name, case[0]), references[case])


@pytest.mark.parametrize(
    ("name", "sequence", "case"),
    [("mlp", False, CASES[1]), ("gpt", False, CASES[1]), ("frozen gpt", True, CASES[0])],
)
@pytest.mark.ranks(4, transports=("threads",))
def test_replicas_of_two_ranks_each_equal_one_process(
    comm: Communicator, name: str, sequence: bool, case: Case, references: dict[Case, dict[str, Any]]
) -> None:
    mesh = Mesh(comm, data=2, tensor=2)
    assert_equal(train(build(mesh, name, case, sequence), name, case[0]), references[case])


@pytest.mark.parametrize("name", ["gpt with a vocabulary of 97"])
@pytest.mark.ranks(4, transports=("mpi",))
def test_replicas_on_mpi_equal_one_process(
    comm: Communicator, name: str, references: dict[Case, dict[str, Any]]
) -> None:
    mesh, case = Mesh(comm, data=2, tensor=2), CASES[0]
    assert_equal(train(build(mesh, name, case, sequence=True), name, case[0]), references[case])


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.ranks(2, 3, 4, transports=("threads",))
def test_what_is_repeated_keeps_the_same_bytes_on_all_ranks(comm: Communicator, sequence: bool) -> None:
    replica = build(Mesh(comm, data=1, tensor=comm.size), "gpt", CASES[1], sequence)
    train(replica, "gpt", batch=1, steps=10)
    digest = hashlib.sha256()
    repeated = [p for p in replica.model.parameters() if p.placement.repeated]
    for parameter in repeated:
        assert parameter.placement.partial == (("tensor",) if sequence else ())
        digest.update(parameter.data.tobytes())
    assert len(repeated) == 2 * (2 * 2 + 2) + 2 + 1  # norms, biases behind a sum, the last norm, positions
    everyone = comm.all_gather(np.frombuffer(digest.digest(), np.uint8)[None])
    assert (everyone == everyone[0]).all()


@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_the_ranks_together_hold_each_matrix_once(comm: Communicator) -> None:
    model = build(Mesh(comm, data=1, tensor=comm.size), "gpt with a vocabulary of 97", CASES[0]).model
    cut = sum(p.size for p in model.parameters() if not p.placement.repeated)
    together = int(comm.all_reduce(np.array(cut)))
    repeated = sum(p.size for p in model.parameters()) - cut
    assert together + repeated == sum(p.size for p in MODELS["gpt with a vocabulary of 97"][0]().parameters())
    assert cut <= 1.15 * together / comm.size + 12 * 97 * (comm.size > 1)


class Bytes(Listener):
    """Listen to what a communicator does as "activation": (operation, bytes of this rank's array)."""

    def __init__(self, comm: Communicator) -> None:
        self.heard: list[tuple[str, int]] = []
        comm.listeners.append(self)

    def before(self, event: Event) -> None:
        if event.purpose == "activation":
            self.heard.append((event.operation, event.bytes))


@pytest.mark.ranks(2, 3, 4, transports=("threads",))
def test_a_step_sends_what_the_formula_of_megatron_says(comm: Communicator) -> None:
    name, layers, batch = "gpt with a vocabulary of 97", 2, 3
    stream = batch * TIME * 12 * 8  # bytes of one activation
    targets = batch * TIME
    inputs, labels = examples(name)
    sent = []
    for sequence in (False, True):
        mesh = Mesh(comm, data=1, tensor=comm.size)
        replica = build(mesh, name, CASES[1], sequence)
        assert replica.model(inputs[:batch]).shape[-1] <= -(-97 // comm.size)  # nobody holds all logits
        listener, before = Bytes(mesh.comm("tensor")), comm.counters["activation"][1]
        replica.forward_backward(Batch(inputs[:batch], labels[:batch], targets))
        sent.append(int(comm.all_reduce(np.array(comm.counters["activation"][1] - before))))
        replica.sync.step()

        loss = [("all_reduce", targets * 8), ("all_reduce", 2 * targets * 8)]
        if not sequence:
            # Two in forward and two in backward for each block, one for the embedding, one for the head.
            assert sorted(listener.heard) == sorted([("all_reduce", stream)] * (4 * layers + 2) + loss)
            continue
        reduced = [nbytes for operation, nbytes in listener.heard if operation == "reduce_scatter"]
        gathered = [nbytes for operation, nbytes in listener.heard if operation == "all_gather"]
        assert reduced == [stream] * (4 * layers + 2)
        assert gathered == [len(np.array_split(np.arange(TIME), comm.size)[comm.rank]) * stream // TIME] * (
            4 * layers + 2
        )
        assert len(listener.heard) == len(reduced) + len(gathered) + len(loss)

    # Both halves of a ring send (p-1)/p of everything over all p ranks together: what an all-reduce must send at least.
    small = {2: 2, 3: 4, 4: 8}[comm.size] * 3 * targets * 8  # messages of recursive doubling
    assert sent[1] == 2 * (comm.size - 1) * stream * (4 * layers + 2) + small
    assert sent[0] == {2: 2, 3: 4, 4: 8}[comm.size] * (stream * (4 * layers + 2) + 3 * targets * 8)
    assert sent[0] == sent[1] if comm.size < 4 else sent[0] > sent[1]


@pytest.mark.ranks(2, 4, transports=("threads",))
def test_sequence_parallelism_keeps_less_on_the_tape_by_the_formula(comm: Communicator) -> None:
    """The ranks are threads here, so what is measured is the sum over them."""
    batch, time, width, layers, p = 4, 64, 128, 2, comm.size
    tokens = np.zeros((batch, time), np.int64)
    held = []
    for sequence in (False, True):
        mesh = Mesh(comm, data=1, tensor=p)
        model = GPT(97, time, layers, width, heads=4, seed=None)
        parallelize(model, mesh, sequence)
        model.initialize(seed=0, dtype=np.float64)
        comm.barrier()
        if comm.rank == 0:
            tracemalloc.start()
        comm.barrier()
        outputs = model(tokens)
        comm.barrier()
        if comm.rank == 0:
            held.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
        comm.barrier()
        del outputs
    if comm.rank == 0:
        n = batch * time * width * 8  # bytes
        logits = n / width * 97 + width * 97 * 8  # and the table as the head reads it
        blocks, edge = layers * (4 * p + 12) * n, 2 * p * n  # edge: what the last norm reads, and the head
        assert abs(held[0] / (blocks + edge + logits) - 1) < 0.03
        blocks, edge = layers * (2 * p + 14) * n, (p + 1) * n
        assert abs(held[1] / (blocks + edge + logits) - 1) < 0.03


@pytest.mark.ranks(2, 3, transports=("threads",))
def test_a_bias_behind_a_sum_counts_once(comm: Communicator) -> None:
    model = MLP([4, 7, 3], seed=None)
    parallelize(model, Mesh(comm, data=1, tensor=comm.size))
    model.initialize(seed=1, dtype=np.float64)
    model.layers[0].weight.data = model.layers[0].weight.data * 0
    model.layers[1].bias.data = np.full(3, 100.0)
    assert (model(np.ones((2, 4))).data == 100).all()


@pytest.mark.ranks(2, 3, 4, transports=("threads",))
def test_a_sequence_shorter_than_there_are_ranks_works(comm: Communicator) -> None:
    models = [gpt(7), gpt(7).initialize(3, np.float64)]
    _, argmax = parallelize(models[0], Mesh(comm, data=1, tensor=comm.size), sequence=True)
    models[0].initialize(3, np.float64)
    for tokens in (np.array([[6]]), np.array([[1, 0], [5, 6]])):
        classes = argmax(models[0](tokens))
        np.testing.assert_array_equal(classes, models[1](tokens).data.argmax(-1))


@pytest.mark.ranks(1, 2, 3, transports=("threads",))
def test_the_class_and_the_loss_of_split_logits_are_those_of_whole_ones(comm: Communicator) -> None:
    whole = np.round(normal(1, "logits", 0, 0, 40 * 7).reshape(5, 8, 7))  # many are equal
    whole[0, 0] = np.inf, 0, np.nan, 1, np.nan, 2, np.inf
    whole[0, 1] = -np.inf
    whole[1] += 1e8
    labels = np.arange(40).reshape(5, 8) % 7
    columns = np.array_split(np.arange(7), comm.size)[comm.rank]
    for dtype in (np.float32, np.float64):
        split = Tensor(whole[..., columns].astype(dtype), requires_grad=True)
        complete = Tensor(whole.astype(dtype), requires_grad=True)
        np.testing.assert_array_equal(split_argmax(comm, columns[0], split), whole.astype(dtype).argmax(-1))
        losses = [
            split_cross_entropy(comm, columns[0], 7, split[1:], labels[1:], 9),
            ops.cross_entropy(complete[1:], labels[1:], 9),
        ]
        assert losses[0].dtype == dtype
        np.testing.assert_allclose(losses[0].data, losses[1].data if comm.rank == 0 else 0, rtol=1e-6)
        for loss in losses:
            loss.backward()
        np.testing.assert_allclose(split.grad, complete.grad[..., columns], rtol=1e-5, atol=1e-8)
        nan = split_cross_entropy(comm, columns[0], 7, split[:1], labels[:1], 9)
        assert np.isnan(nan.item()) if comm.rank == 0 else nan.item() == 0


@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_dropout_between_split_layers_drops_what_one_process_drops(comm: Communicator) -> None:
    def loss(x: Tensor, layers: Any, placement: Placement) -> Tensor:
        hidden = ops.relu(layers[0](x))  # (n, columns here)
        hidden = ops.dropout(hidden, 0.4, 1, "hidden", 2, stretches=placement.stretches())
        return (layers[1](hidden) ** 2).sum()

    x, whole = Tensor(normal(1, "x", 0, 0, 6 * 4).reshape(6, 4)), MLP([4, 7, 3], dtype=np.float64)
    loss(x, whole.layers, Placement((6, 7))).backward()
    model = MLP([4, 7, 3], seed=None)
    parallelize(model, Mesh(comm, data=1, tensor=comm.size))
    model.initialize(0, np.float64)
    loss(x, model.layers, Placement((6, 7), 1, np.array_split(np.arange(7), comm.size)[comm.rank])).backward()
    for part, complete in zip(model.parameters(), whole.parameters(), strict=True):
        np.testing.assert_allclose(part.grad, part.placement.take(complete.grad), rtol=1e-12, atol=1e-12)


@pytest.mark.ranks(2, 3, transports=("threads",))
def test_tokens_and_labels_that_do_not_exist_are_refused_on_all_ranks(comm: Communicator) -> None:
    model = gpt(7)
    loss, _ = parallelize(model, Mesh(comm, data=1, tensor=comm.size))
    model.initialize(0)
    for wrong in (7, -1):
        with pytest.raises(
            IndexError, match=f"rows 0 to 6, got indices from {min(wrong, 0)} to {max(wrong, 0)}"
        ):
            model(np.array([[0, wrong]]))
        with pytest.raises(IndexError, match=f"from {wrong} to {wrong}, and there are classes 0 to 6"):
            loss(model(np.array([[0]])), np.array([[wrong]]), 1)


@pytest.mark.parametrize(
    ("ranks", "data", "make", "sequence", "words"),
    [
        (
            3,
            1,
            lambda: CNN((1, 4, 4), 5, seed=None),
            False,
            "a cnn cannot be shared out by tensors, only an mlp or a gpt",
        ),
        (
            2,
            1,
            lambda: MLP([4, 5], seed=None),
            True,
            "cuts the time of a gpt, and an mlp has none: leave it out",
        ),
        (
            4,
            1,
            lambda: GPT(9, layers=1, width=6, heads=3, seed=None),
            False,
            r"3 heads cannot be shared by tensor=4 ranks, .* try data=2,tensor=2, or start fewer ranks \(tensor=3\), "
            "or take 4 heads",
        ),
        (
            3,
            1,
            lambda: GPT(2, layers=1, width=6, heads=3, seed=None),
            False,
            "2 tokens of the vocabulary cannot be shared by tensor=3 ranks, .* try data=3,tensor=1",
        ),
        (
            4,
            1,
            lambda: MLP([4, 5, 6, 3], seed=None),
            False,
            "3 outputs of layer 2 cannot be shared by tensor=4 ranks, .* try data=2,tensor=2",
        ),
    ],
)
@pytest.mark.ranks(4, transports=("threads",))
def test_what_cannot_be_shared_out_is_said(
    comm: Communicator, ranks: int, data: int, make: Any, sequence: bool, words: str
) -> None:
    some = comm.split(0 if comm.rank < ranks else None)
    if some is not None:
        mesh, model = Mesh(some, data=data, tensor=ranks), make()
        with pytest.raises(UserError, match=words):
            parallelize(model, mesh, sequence)
        assert all(parameter.placement is None for parameter in model.parameters())  # nothing is half done


def test_a_model_that_is_drawn_already_is_refused() -> None:
    with pytest.raises(ValueError, match="declare the model with seed=None"):
        parallelize(MLP([4, 5]), Mesh(world(), data=1, tensor=1))
