"""What ZeRO sends and holds, on every rank, is what the formulas say."""

import gc
import tracemalloc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from minidist.autograd import Parameter
from minidist.comm import Communicator, Mesh
from minidist.comm.threads import run_ranks
from minidist.models import MLP
from minidist.nn import Module, cut_into_buckets, flatten
from minidist.optim import SGD
from minidist.plan import zero as plan
from minidist.plan.traffic import all_reduce, broadcast
from minidist.split.replica import Batch, whole_loss
from minidist.split.whole import Whole
from minidist.sync.zero import FLYING, Zero

SIZES = [160, 240, 200, 120, 120, 80, 10]
BYTES = 100_000  # of a bucket, at least


class Measured(Zero):
    """Write down the most memory that gradients and fetched weights have taken besides what is always held."""

    most = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.alive: list[weakref.ref[np.ndarray]] = []
        super().__init__(*arguments, **options)

    def _lend(self, parameter: Parameter) -> None:
        known = set(self._lent)
        super()._lend(parameter)
        self.alive += [weakref.ref(self._lent[index]) for index in set(self._lent) - known]
        held = [memory for ref in self.alive if (memory := ref()) is not None]
        self.most = max(self.most, sum(memory.nbytes for memory in held))


def start(comm: Communicator, stage: int, accumulate: int = 1) -> tuple[Measured, Whole]:
    model = MLP(SIZES, dtype=np.float64)
    groups = flatten(model)
    mesh = Mesh(comm, data=comm.size)
    sync = Measured(mesh, groups, SGD(groups, 0.1, momentum=0.9), None, BYTES, stage)
    return sync, Whole(model, whole_loss, sync, accumulate)


def batch(comm: Communicator, examples: int = 1) -> Batch:
    return Batch(np.ones((examples, SIZES[0])), np.zeros(examples, np.int64), examples * comm.size)


def shared(sync: Zero) -> list[plan.Shared]:
    return [plan.Shared(s.bucket.size, 8, s.comm.rank, s.comm.size, s.bucket.group.axes) for s in sync.shards]


def reads(forwards_and_backwards: int) -> tuple[list[int], int]:
    """Let a model on one rank tell in which order it reads buckets, in so many passes; and how many there are."""
    model = MLP(SIZES, dtype=np.float64)
    buckets = cut_into_buckets(flatten(model), BYTES)
    told = plan.Reads(buckets)
    for _ in range(forwards_and_backwards):
        whole_loss(model(np.ones((1, SIZES[0]))), np.zeros(1, np.int64), 1).backward()
    return told.order, len(buckets)


def of_owner(array: np.ndarray | None) -> int:
    """The bytes behind an array: none if it stands in for what is elsewhere."""
    return 0 if array is None or (array.size > 1 and not any(array.strides)) else array.nbytes


def held(sync: Zero) -> dict[str, int]:
    groups = sync.groups
    shards = sync.shards if sync.stage == 3 else []
    state: Sequence[np.ndarray] = [v for vectors in sync.optimizer.state.values() for v in vectors]
    return {
        "weights": sum(of_owner(g.weights) for g in groups) + sum(s.weights.nbytes for s in shards),
        "gradients": sum(of_owner(g.gradients) for g in groups),
        "state": sum(v.nbytes for v in state),
    }


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_a_step_sends_what_was_predicted(comm: Communicator, stage: int) -> None:
    for accumulate in (1, 3):
        before = comm.counters
        sync, replica = start(comm, stage, accumulate)
        assert len(sync.buckets) == 4
        for _ in range(2):
            replica.forward_backward(batch(comm, 3))
            sync.step()
        after = comm.counters  # of both steps: when one rank leaves the first, another may be in the second
        expected = plan.bytes_per_step(shared(sync), stage, plan.fetches(*reads(accumulate)))
        expected["control"] += all_reduce(1, 8, comm.rank, comm.size)  # the norm
        expected = {purpose: traffic * 2 for purpose, traffic in expected.items()}
        n = sum(bucket.n for bucket in shared(sync))
        expected["weights"] += broadcast(8 * n, comm.rank, comm.size)  # at the start
        for purpose, traffic in expected.items():
            sent = tuple(np.subtract(after[purpose], before[purpose]))
            assert sent == (traffic.messages, traffic.bytes), purpose
        sync.finish()


def test_fetches_for_microbatches_follow_the_formula() -> None:
    for microbatches in (1, 2, 5):
        times = plan.fetches([4, 3, 2, 1, 0, 0, 1, 2, 3, 4] * microbatches, 5)
        assert sum(times) == microbatches * (2 * 5 - 2) + 1


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.ranks(1, 2, 3, 4, transports=("threads",))
def test_a_rank_holds_what_was_predicted(comm: Communicator, stage: int) -> None:
    sync, replica = start(comm, stage)
    for _ in range(2):
        replica.forward_backward(batch(comm))
        sync.step()
    expected = plan.memory(shared(sync), stage, slots=1, flying=FLYING)
    got = held(sync)
    assert got["weights"] == expected["weights"]
    assert got["state"] == expected["state"]
    assert got["gradients"] == (expected["gradients"] if stage == 1 else 0)  # else they go after the update
    assert sync.most <= expected["gradients being written"]
    assert sync.most == 0 or sync.most < sum(b.n * b.itemsize for b in shared(sync))
    sync.finish()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_python_has_counted_the_same_memory(stage: int, size: int) -> None:
    """All ranks are threads here, so what Python has taken is the sum of what they hold."""

    def on_rank(comm: Communicator) -> tuple[Zero, Module, int]:
        sync, replica = start(comm, stage)
        replica.forward_backward(batch(comm))
        sync.step()
        return sync, replica.model, sum(plan.memory(shared(sync), stage, 1).values())

    def taken() -> tuple[list[Any], int]:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        kept = run_ranks(on_rank, size)
        gc.collect()
        return kept, tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        taken()  # what is made once: caches, tables
        kept, measured = taken()
    finally:
        tracemalloc.stop()
    expected = sum(sum(held(sync).values()) for sync, _, _ in kept)
    assert expected <= measured <= expected + size * 40_000, measured - expected  # objects: tables, threads
