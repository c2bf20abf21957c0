"""Every silent mistake is caught, with the first tensor that is wrong and what made it.

`right` is a step as it should be; each fault is that step with one thing wrong. `CAUGHT` says what must be found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from minidist import check
from minidist.autograd import Parameter, Tensor, ops
from minidist.comm import Communicator, Mesh
from minidist.data import loader
from minidist.models import GPT, MLP
from minidist.nn import Linear, Module, flatten
from minidist.optim import SGD
from minidist.random import uniform
from minidist.split import tensor_layers, tensor_parallel
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.split.replica import Batch, whole_loss
from minidist.split.stages import cut
from minidist.split.whole import Whole
from minidist.sync import clipping
from minidist.sync.data_parallel import DataParallel
from minidist.sync.seam import Sync
from minidist.sync.zero import Zero

IMAGES = uniform(1, "images", 0, 0, 36 * 16).reshape(36, 1, 4, 4)
LABELS = (np.arange(36) * 3) % 5
TOKENS = (uniform(2, "tokens", 0, 0, 36 * 5) * 7).astype(np.int64).reshape(36, 5)
TEXT = TOKENS[:, :-1], TOKENS[:, 1:]


@dataclass
class State:
    model: Module
    optimizer: Any
    more: Any = None


def build(comm: Communicator, momentum: float = 0.0, seed: int = 0) -> State:
    model = MLP([16, 9, 5], seed=seed, dtype=np.float64)
    return State(model, SGD(flatten(model), 0.1, momentum))


def rows(comm: Communicator, inputs: np.ndarray) -> np.ndarray:
    return loader.share(np.arange(len(inputs)), comm.rank, comm.size)


def backward(state: State, inputs: np.ndarray, labels: np.ndarray, count: int) -> Tensor:
    for parameter in state.model.parameters():
        parameter.zero_grad()
    loss = ops.cross_entropy(state.model(inputs), labels, count)
    loss.backward()
    return loss


def combine(comm: Communicator, state: State, scale: float = 1.0) -> None:
    for parameter in state.model.parameters():
        parameter.grad = comm.all_reduce(parameter.grad) * scale


def right(comm: Communicator, state: State, inputs: np.ndarray, labels: np.ndarray) -> Any:
    """Sum losses over the global count, and gradients over the ranks."""
    mine = rows(comm, inputs)
    loss = backward(state, inputs[mine], labels[mine], len(inputs))
    combine(comm, state)
    state.optimizer.step()
    return comm.all_reduce(loss.data)


# ---- gradients that are summed, averaged, weighted wrongly


def summed(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(mine))
    combine(comm, state)
    state.optimizer.step()


def averaged_twice(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    combine(comm, state, 1 / comm.size)
    state.optimizer.step()


def mean_of_means(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(mine))
    combine(comm, state, 1 / comm.size)
    state.optimizer.step()


def mean_of_means_3331(comm, state, inputs, labels):
    size = -(-len(inputs) // comm.size)
    mine = np.arange(len(inputs))[comm.rank * size : (comm.rank + 1) * size]
    backward(state, inputs[mine], labels[mine], len(mine))
    combine(comm, state, 1 / comm.size)
    state.optimizer.step()


def never_divided(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], 1 if comm.size > 1 else len(inputs))
    combine(comm, state)
    state.optimizer.step()


def not_combined(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(mine))
    state.optimizer.step()


def one_left_out(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    for parameter in state.model.parameters()[:-1]:
        parameter.grad = comm.all_reduce(parameter.grad)
    state.optimizer.step()


def update_too_early(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    state.optimizer.step()
    combine(comm, state)


def weights_summed(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    for parameter in state.model.parameters():
        parameter.data = comm.all_reduce(parameter.data)
    state.optimizer.step()


def grad_none(comm, state, inputs, labels):
    """A branch that rank 1 does not use; who has a gradient averages it with nobody."""
    mine = rows(comm, inputs)
    for parameter in state.parameters():
        parameter.zero_grad()
    x = Tensor(inputs[mine].reshape(len(mine), -1))
    y = state.trunk(x)
    if comm.rank != 1:
        y = y + state.branch(x)
    ops.cross_entropy(y, labels[mine], len(inputs)).backward()
    for parameter in state.trunk.parameters():
        parameter.grad = comm.all_reduce(parameter.grad)
    for parameter in state.parameters():
        if parameter.grad is not None:
            parameter.data = parameter.data - 0.1 * parameter.grad


class Branched(Module):
    def __init__(self) -> None:
        self.trunk, self.branch = Linear(16, 5), Linear(16, 5)
        self.initialize(0, np.float64)

    def forward(self, x: np.ndarray) -> Tensor:
        flat = Tensor(x.reshape(len(x), -1))
        return self.trunk(flat) + self.branch(flat)


# ---- rows, labels, numbers that are reported


def same_rows(comm, state, inputs, labels):
    mine = loader.share(np.arange(len(inputs)), 0, comm.size)
    backward(state, inputs[mine], labels[mine], len(mine))
    combine(comm, state, 1 / comm.size)
    state.optimizer.step()


def remainder_dropped(comm, state, inputs, labels):
    each = len(inputs) // comm.size
    mine = np.arange(comm.rank * each, (comm.rank + 1) * each)
    backward(state, inputs[mine], labels[mine], each)
    combine(comm, state, 1 / comm.size)
    state.optimizer.step()


def padded(comm, state, inputs, labels):
    each = -(-len(inputs) // comm.size)
    mine = np.arange(comm.rank * each, (comm.rank + 1) * each) % len(inputs)
    backward(state, inputs[mine], labels[mine], each)
    combine(comm, state, 1 / comm.size)
    state.optimizer.step()


def others_labels(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[: len(mine)], len(inputs))
    combine(comm, state)
    state.optimizer.step()


def padded_metric(comm, state, inputs, labels):
    right(comm, state, inputs, labels)
    each = -(-len(inputs) // comm.size)
    mine = np.arange(comm.rank * each, (comm.rank + 1) * each) % len(inputs)
    before = MLP([16, 9, 5], seed=0, dtype=np.float64)
    correct = (before(inputs[mine]).data.argmax(-1) == labels[mine]).sum()
    return {"accuracy": comm.all_reduce(correct.astype(float)) / (each * comm.size)}


def metric_of_means(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    loss = backward(state, inputs[mine], labels[mine], len(inputs))
    combine(comm, state)
    state.optimizer.step()
    return comm.all_reduce(loss.data * len(inputs) / len(mine)) / comm.size


def rank_0s_loss(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    loss = backward(state, inputs[mine], labels[mine], len(inputs))
    combine(comm, state)
    state.optimizer.step()
    return loss.item() * len(inputs) / len(mine) if comm.rank == 0 else None


# ---- steps and their state


def not_cleared(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    ops.cross_entropy(state.model(inputs[mine]), labels[mine], len(inputs)).backward()
    combine_in_place(comm, state)
    state.optimizer.step()


def cleared_on_rank_0(comm, state, inputs, labels):
    if comm.rank == 0:
        for parameter in state.model.parameters():
            parameter.zero_grad()
    not_cleared(comm, state, inputs, labels)


def combine_in_place(comm, state):
    for group in state.optimizer.groups:
        comm.all_reduce(group.gradients, out=group.gradients)


def only_rank_0_updates(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    combine(comm, state)
    if comm.rank == 0:
        state.optimizer.step()


def momentum_on_rank_0(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    combine(comm, state)
    if comm.rank == 0:
        state.optimizer.step()
    else:
        for parameter in state.model.parameters():
            parameter.data = parameter.data - 0.1 * parameter.grad


def lr_rescaled(comm, state, inputs, labels):
    state.optimizer.lr = 0.1 * comm.size
    right(comm, state, inputs, labels)


def lr_left_out(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    combine(comm, state)
    for parameter in state.model.parameters():
        parameter.data = parameter.data - (0.1 if comm.size == 1 else 1.0) * parameter.grad


def applied_twice(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    combine(comm, state)
    state.optimizer.step()
    if comm.size > 1:
        state.optimizer.step()


def stale_weights(comm, state, inputs, labels):
    """Rank 0 updates, and sends its weights behind; the others go forward before they have come."""
    mine = rows(comm, inputs)
    requests = []
    if state.more is not None:
        requests = [comm.ibroadcast(g.weights) for g in state.optimizer.groups]
    for parameter in state.model.parameters():
        parameter.zero_grad()
    loss = ops.cross_entropy(state.model(inputs[mine]), labels[mine], len(inputs))
    for request in requests:
        request.wait()
    loss.backward()
    combine(comm, state)
    if comm.rank == 0:
        state.optimizer.step()
    state.more = True


def torn_pull(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    combine(comm, state)
    old = state.model.layers[0].weight.data.copy()
    state.optimizer.step()
    if comm.rank == 1:
        state.model.layers[0].weight.array[:8] = old[:8]


def pushed_twice(comm, state, inputs, labels):
    """A server, rank 0, applies rank 1's gradient twice after a retry."""
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    for parameter in state.model.parameters():
        parts = comm.all_gather(parameter.grad[None])
        total = parts.sum(axis=0) + (parts[1] if comm.size > 1 else 0)
        parameter.data = parameter.data - 0.1 * total


def averaged_equally(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(mine))
    state.optimizer.step()
    for parameter in state.model.parameters():
        parameter.data = comm.all_reduce(parameter.data) / comm.size


def clipped_first(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    backward(state, inputs[mine], labels[mine], len(inputs))
    norm = np.sqrt(sum((p.grad**2).sum() for p in state.model.parameters()))
    combine_scaled(comm, state, min(1, 0.05 / norm))
    state.optimizer.step()


def combine_scaled(comm, state, scale):
    for parameter in state.model.parameters():
        parameter.grad = comm.all_reduce(parameter.grad * scale)


# ---- accumulation


def accumulate(comm, state, inputs, labels, count, combine_at=None):
    mine = rows(comm, inputs)
    for parameter in state.model.parameters():
        parameter.zero_grad()
    pieces = [piece for piece in np.array_split(mine, 3) if len(piece)]
    for number, piece in enumerate(pieces):
        loss = ops.cross_entropy(state.model(inputs[piece]), labels[piece], count(piece, pieces))
        loss.backward()
        if number == combine_at:
            combine(comm, state)
    if combine_at is None:
        combine(comm, state)
    state.optimizer.step()


def microbatches_not_divided(comm, state, inputs, labels):
    accumulate(comm, state, inputs, labels, lambda piece, pieces: len(piece) * comm.size)


def microbatches_divided_twice(comm, state, inputs, labels):
    accumulate(comm, state, inputs, labels, lambda piece, pieces: len(inputs) * len(pieces))


def combined_at_the_first(comm, state, inputs, labels):
    accumulate(comm, state, inputs, labels, lambda piece, pieces: len(inputs), combine_at=0)


def cleared_in_between(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    for piece in np.array_split(mine, 2):
        backward(state, inputs[piece], labels[piece], len(inputs))
    combine(comm, state)
    state.optimizer.step()


def divided_each_time(comm, state, inputs, labels):
    """A running mean of microbatches instead of their sum."""
    mine = rows(comm, inputs)
    for parameter in state.model.parameters():
        parameter.zero_grad()
    for piece in np.array_split(mine, 3):
        ops.cross_entropy(state.model(inputs[piece]), labels[piece], len(inputs)).backward()
        for parameter in state.model.parameters():
            parameter.grad = parameter.grad * 0.5
    combine(comm, state)
    state.optimizer.step()


# ---- layers whose forward depends on the rank


class Noisy(Module):
    """Dropout by a generator of each rank."""

    def __init__(self, seed: int) -> None:
        self.first, self.last = Linear(16, 9), Linear(9, 5)
        self.draw = np.random.default_rng(seed)
        self.drop = Drop(self.draw)
        self.initialize(0, np.float64)

    def forward(self, x: np.ndarray) -> Tensor:
        return self.last(self.drop(self.first(Tensor(x.reshape(len(x), -1)))))


class Drop(Module):
    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.generator.random(x.shape) > 0.5) * 2.0


class BatchNorm(Module):
    def __init__(self, width: int) -> None:
        self.mean = np.zeros(width)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(axis=0, keepdims=True)
        self.mean = 0.9 * self.mean + 0.1 * mean.data[0]
        return x - mean


class Normed(Module):
    def __init__(self, norm: Callable[[int], Module] = BatchNorm) -> None:
        self.first, self.norm, self.last = Linear(16, 9), norm(9), Linear(9, 5)
        self.initialize(0, np.float64)

    def forward(self, x: np.ndarray) -> Tensor:
        return self.last(ops.relu(self.norm(self.first(Tensor(x.reshape(len(x), -1))))))


class Counting(Module):
    """Running statistics that are kept, and not used in training."""

    def __init__(self, width: int) -> None:
        self.mean = np.zeros(width)

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.data.mean(axis=0)
        return x


def with_model(make: Callable[[Communicator], Module]) -> Callable[[Communicator], State]:
    def built(comm: Communicator) -> State:
        model = make(comm)
        return State(model, SGD(flatten(model), 0.1))

    return built


# ---- the engine's own pieces with something planted


class Unsummed(DataParallel):
    """Leaves the sum over other axes out: for weights that several ranks of a replica hold."""

    def gradient_ready(self, bucket):
        if bucket.group.axes == ("data",):
            super().gradient_ready(bucket)

    def _arriving(self):
        for bucket in self.buckets:
            if bucket.index in self._requests:
                self._requests.pop(bucket.index).wait()
            yield [id(g) for g in self.optimizer.groups].index(id(bucket.group)), bucket.region


class ClipsApart(Sync):
    """Clips each stage by its own norm."""

    def __init__(self, mesh, groups, optimizer):
        self.optimizer, self.groups = optimizer, groups

    def step(self):
        for group in self.groups:
            norm = np.sqrt((group.gradients**2).sum())
            group.gradients *= clipping.clip_scale(norm, 0.01)
        self.optimizer.step()


def split(
    axis: str, model: str = "mlp", sync: Any = DataParallel, schedule: str = "1f1b", plant: Any = None
) -> Any:
    """Build a replica that is spread over all ranks along `axis`."""

    def built(comm: Communicator) -> Any:
        mesh = Mesh(comm, data=1, **{axis: comm.size})
        whole = MLP([16, 9, 8, 7, 5], seed=None) if model == "mlp" else GPT(7, 4, 2, 12, 4, seed=None)
        loss, here = whole_loss, whole
        if axis == "tensor":
            loss, _ = tensor_parallel.parallelize(whole, mesh, sequence=model == "sequence")
        else:
            here = cut(whole, mesh)
        here.initialize(4, np.float64)
        groups = flatten(here)
        rule = sync(mesh, groups, SGD(groups, 0.1))
        if axis == "tensor":
            replica = Whole(whole, loss, rule)
        else:
            replica = PipelineParallel(here, loss, rule, mesh, schedule, microbatches=3)
        if plant:
            plant(replica, comm)
        return replica

    return built


def replica_step(comm, replica, inputs, labels):
    share = replica.forward_backward(Batch(inputs, labels, labels.size))
    replica.sync.step()
    return comm.all_reduce(np.array(share))


def bias_before_the_sum(replica, comm):
    for layer in replica.model.modules():
        if isinstance(layer, tensor_layers.RowParallel):
            layer.forward = lambda x, activation=None, layer=layer: (
                ops.relu(layer.stream.leave(x @ layer.weight + layer.bias))
                if activation
                else layer.stream.leave(x @ layer.weight + layer.bias)
            )


def no_entrance(replica, comm):
    """Gradients of what goes into a split layer are not summed."""
    for layer in replica.model.modules():
        if isinstance(layer, tensor_layers.ColumnParallel | tensor_layers.NormBeforeHead):
            layer.stream = type("Silent", (tensor_layers.Stream,), {"enter": lambda self, x: x})(
                layer.stream.comm
            )


def microbatches_mixed_up(replica, comm):
    plain = replica.tag
    if comm.size > 1:  # 1 and 2 take each other's place
        other = {0: 0, 1: 2, 2: 1}
        forward, last = replica.forward, comm.size - 1

        def swapped(m, chunk):
            if comm.rank == last:
                batches = list(replica._batches)
                batches[m] = batches[other[m]] if len(batches) == 3 else batches[m]
                plain_batches, replica._batches = replica._batches, batches
                forward(m, chunk)
                replica._batches = plain_batches
            else:
                forward(m, chunk)

        replica.forward = swapped
    replica.tag = plain


def own_count_of_microbatch(replica, comm):
    """Every microbatch divides by its own count, and nobody by their number."""
    replica.loss = lambda outputs, labels, count: whole_loss(outputs, labels, labels.size)


def raw_sum(replica, comm):
    if comm.size > 1:
        replica.loss = lambda outputs, labels, count: whole_loss(outputs, labels, 1)


def own_count(comm, state, inputs, labels):
    """Every replica divides by its own count."""
    mine = rows(comm, inputs)
    state.forward_backward(Batch(inputs[mine], labels[mine], len(mine)))
    state.sync.step()


def zero_2(comm):
    mesh = Mesh(comm, data=comm.size)
    model = MLP([16, 9, 5], dtype=np.float64)
    groups = flatten(model)
    rule = SGD(groups, 0.1, 0.9)
    sync = Zero(mesh, groups, rule, stage=2) if comm.size > 1 else DataParallel(mesh, groups, rule)
    return Whole(model, whole_loss, sync)


class DropsByShare(Module):
    """Dropout by an example's place in the share of its rank."""

    def __init__(self) -> None:
        self.first, self.last = Linear(16, 9), Linear(9, 5)
        self.initialize(0, np.float64)

    def forward(self, x: np.ndarray) -> Tensor:
        hidden = self.first(Tensor(x.reshape(len(x), -1)))
        return self.last(ops.dropout(hidden, 0.5, 0, "drop", 0))


class Late(Module):
    """Makes its last layer in the first forward, when the list of what is combined is complete."""

    def __init__(self) -> None:
        self.first = Linear(16, 9)
        self.initialize(0, np.float64)

    def forward(self, x: np.ndarray) -> Tensor:
        if "last" not in vars(self):
            self.last = Linear(9, 5)
            self.last.initialize(1, np.float64)
        return self.last(ops.relu(self.first(Tensor(x.reshape(len(x), -1)))))


def made_late(comm, state, inputs, labels):
    mine = rows(comm, inputs)
    known = state.parameters()
    backward(State(state, None), inputs[mine], labels[mine], len(inputs))
    for parameter in known:
        parameter.grad = comm.all_reduce(parameter.grad)
    for parameter in state.parameters():
        parameter.data = parameter.data - 0.1 * parameter.grad


def loose(comm):
    return [Parameter(uniform(3, "w", 0, 0, 80).reshape(16, 5)), Parameter(np.zeros(5))]


def loose_mean_of_means(comm, state, inputs, labels):
    """No module, no optimizer: parameters in a list."""
    weight, bias = state
    mine = rows(comm, inputs)
    for parameter in state:
        parameter.zero_grad()
    outputs = Tensor(inputs[mine].reshape(len(mine), -1)) @ weight + bias
    ops.cross_entropy(outputs, labels[mine], len(mine)).backward()
    for parameter in state:
        parameter.data = parameter.data - 0.1 * comm.all_reduce(parameter.grad) / comm.size


@dataclass
class Caught:
    step: Any
    stage: str
    tensor: str
    cause: str
    text: str
    build: Any = build
    at: int = 1
    data: Any = (IMAGES, LABELS)
    ranks: tuple[int, ...] = (2, 4)


HEAD = "layers.1.bias"
CAUGHT = {
    "summed": Caught(summed, "gradient", HEAD, "summed", "4.000 times the one-process gradients on every parameter"),
    "averaged twice": Caught(averaged_twice, "gradient", HEAD, "averaged twice", "0.250 times"),
    "mean of means": Caught(mean_of_means, "gradient", HEAD, "mean of means", "3, 3, 3, 2 examples"),
    "mean of means, last short": Caught(
        mean_of_means_3331, "gradient", HEAD, "mean of means", "weight by the number of examples"
    ),
    "never divided": Caught(never_divided, "gradient", HEAD, "count", "12.000 times"),
    "not combined": Caught(not_combined, "gradient", HEAD, "not combined", "no rank sent anything"),
    "one left out": Caught(one_left_out, "gradient", HEAD, "not combined", "layers.1.bias alone"),
    "update too early": Caught(update_too_early, "gradient", HEAD, "too early", "combine first"),
    "weights summed": Caught(weights_summed, "gradient", HEAD, "weights summed", "4 times as large"),
    "grad None": Caught(
        grad_none, "gradient", "branch.bias", "none", "None on rank 1", lambda comm: Branched()
    ),
    "seed per rank": Caught(right, "start", "layers.0.weight", "seed", "seed", lambda c: build(c, seed=c.rank)),
    "same rows": Caught(same_rows, "rows", "rows", "same rows", "ranks 0-3 read the same examples 0-2"),
    "remainder dropped": Caught(remainder_dropped, "rows", "rows", "rows left out", "8-10"),
    "padded": Caught(padded, "gradient", HEAD, "duplicates", "read 2 times"),
    "others' labels": Caught(others_labels, "labels", "labels", "labels", "labels of other examples"),
    "padded metric": Caught(padded_metric, "value", "accuracy", "", "accuracy"),
    "metric of means": Caught(metric_of_means, "value", "the loss", "mean of means", "3, 3, 3, 2"),
    "rank 0's loss": Caught(rank_0s_loss, "value", "the loss", "one rank's", "3 of 12 examples"),
    "zero_grad missing": Caught(not_cleared, "stale", "layers.1.weight", "zero_grad", "on every rank", at=2),
    "zero_grad on rank 0": Caught(cleared_on_rank_0, "stale", "layers.1.weight", "zero_grad", "ranks 1, 2, 3", at=2),
    "only rank 0 updates": Caught(only_rank_0_updates, "weights", "layers.0.weight", "not updated", "ranks 1, 2, 3"),
    "momentum on rank 0": Caught(
        momentum_on_rank_0, "state", "momentum", "state", "no optimizer state on ranks 1, 2, 3", lambda c: build(c, 0.9)
    ),
    "lr rescaled": Caught(lr_rescaled, "weights", "layers.0.weight", "lr", "4.000 times the one-process update"),
    "lr left out": Caught(lr_left_out, "weights", "layers.0.weight", "no lr", "1/lr"),
    "applied twice": Caught(applied_twice, "weights", "layers.0.weight", "twice", "applied twice"),
    "stale weights": Caught(stale_weights, "weights", "layers.0.weight", "not updated", "did not update"),
    "torn": Caught(torn_pull, "weights", "layers.0.weight", "torn", "24 of its 144 numbers"),
    "pushed twice": Caught(pushed_twice, "weights", "layers.0.weight", "ranks unequal", "1.000, 2.000, 1.000, 1.000"),
    "averaged equally": Caught(averaged_equally, "weights", "layers.0.weight", "mean of means", "3, 3, 3, 2"),
    "clipped first": Caught(clipped_first, "gradient", HEAD, "clipped first", "clipped on each rank"),
    "microbatches not divided": Caught(microbatches_not_divided, "gradient", HEAD, "alone", "3.000 times"),
    "microbatches divided twice": Caught(microbatches_divided_twice, "gradient", HEAD, "alone", "0.333 times"),
    "divided each time": Caught(divided_each_time, "gradient", HEAD, "alone", "0.125, 0.250, 0.500 times"),
    "combined at the first": Caught(
        combined_at_the_first, "gradient", HEAD, "microbatches lost", "do not count on rank"
    ),
    "cleared in between": Caught(cleared_in_between, "gradient", HEAD, "alone", "0-5 do not count"),
    "same dropout mask": Caught(
        right, "forward", "drop", "same mask", "same elements are 0", with_model(lambda c: Noisy(3))
    ),
    "dropout by rank": Caught(
        right, "forward", "drop", "other mask", "depend on the rank", with_model(lambda c: Noisy(c.rank + c.size))
    ),
    "batch norm": Caught(right, "forward", "norm", "statistics", "batch norm", with_model(lambda c: Normed())),
    "running statistics": Caught(
        right, "buffer", "norm.mean", "buffers", "different values", with_model(lambda c: Normed(Counting))
    ),
    "bias before the sum": Caught(
        replica_step, "forward", "layers.1", "bias", "4.000 times", split("tensor", plant=bias_before_the_sum)
    ),
    "no entrance": Caught(
        replica_step, "gradient", "layers.1.bias", "partial", "", split("tensor", plant=no_entrance)
    ),
    "norms not summed": Caught(
        replica_step, "gradient", "norm.bias", "partial", "sum would be right",
        split("tensor", "sequence", Unsummed), data=TEXT,
    ),
    "tied weights apart": Caught(
        replica_step, "gradient", "tokens.weight", "partial", "sum would be right",
        split("pipe", "gpt", Unsummed), data=TEXT,
    ),
    "clipped by stage": Caught(
        replica_step, "gradient", "layers.3.bias", "clipped apart", "its own norm", split("pipe", sync=ClipsApart)
    ),
    "microbatches mixed up": Caught(
        replica_step, "labels", "labels", "labels", "microbatch", split("pipe", plant=microbatches_mixed_up)
    ),
    "microbatch's own count": Caught(
        replica_step, "gradient", "layers.3.bias", "alone", "3.000 times", split("pipe", plant=own_count_of_microbatch)
    ),
    "own count under ZeRO": Caught(own_count, "weights", "layers.0.weight", "summed", "4.000 times", zero_2),
    "dropout by share": Caught(
        right, "forward", "last", "same mask", "place in a rank's share", with_model(lambda c: DropsByShare())
    ),
    "made late": Caught(
        made_late, "gradient", "last.bias", "not combined", "last.bias", lambda comm: Late()
    ),
    "without modules": Caught(
        loose_mean_of_means, "weights", "parameter 0", "uneven", "unequal ones do not", loose
    ),
    "raw sum": Caught(
        replica_step, "gradient", "layers.3.bias", "count", "12.000 times", split("pipe", plant=raw_sum)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUGHT)
def test_a_silent_mistake_is_named(name: str) -> None:
    caught = CAUGHT[name]
    report = check.run(caught.build, caught.step, caught.data, caught.ranks)
    assert not report.ok, "not caught"
    assert (report.step or 1, report.stage, report.tensor) == (caught.at, caught.stage, caught.tensor), (
        report.text
    )
    assert report.cause == caught.cause or not caught.cause, report.text
    assert caught.text in report.text, report.text
