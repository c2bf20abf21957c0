"""What ZeRO sends and holds, on every rank, is what the formulas say."""

import gc
import json
import tracemalloc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from minidist.autograd import Parameter
from minidist.comm import Communicator, Mesh
from minidist.comm.threads import run_ranks
from minidist.models import GPT, MLP
from minidist.nn import Module, flatten
from minidist.optim import SGD
from minidist.plan import zero as plan
from minidist.plan.traffic import all_reduce, broadcast
from minidist.split import schedules
from minidist.split.pipeline_parallel import PipelineParallel, cut
from minidist.split.replica import Batch, whole_loss
from minidist.split.stages import counted_costs, partition
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


def fetches(sync: Zero, passes: int) -> list[int]:
    """How often a rank with the whole model fetches each bucket in so many passes forward and backward."""
    pieces = plan.piece_reads(MLP(SIZES, seed=None), np.ones((1, SIZES[0]), np.float32))
    bucket_of = {parameter.name: b.index for b in sync.buckets for parameter in b.parameters}
    program = schedules.one_f_one_b(1, 0, passes)
    return plan.fetches(plan.order(program, [pieces], bucket_of), len(sync.buckets))


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
        expected = plan.bytes_per_step(shared(sync), stage, fetches(sync, accumulate))
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


@pytest.mark.parametrize(
    ("schedule", "chunks", "recompute"), [("1f1b", 1, False), ("1f1b", 2, True), ("zero-bubble", 1, False)]
)
@pytest.mark.ranks(4, transports=("threads",))
def test_what_the_stages_of_a_pipeline_fetch_is_what_was_predicted(
    comm: Communicator, schedule: str, chunks: int, recompute: bool
) -> None:
    microbatches, mesh = 3, Mesh(comm, data=2, pipe=2)
    model = GPT(5, time=4, layers=3, width=8, heads=2, seed=None)
    tokens = np.arange(microbatches * 4).reshape(microbatches, 4) % 5
    pieces = plan.piece_reads(model, tokens[:1])
    runs = partition(counted_costs(model), 2 * chunks)
    stage = cut(model, mesh, chunks)
    stage.initialize(0, np.float64)
    groups = flatten(stage)
    before = comm.counters
    sync = Zero(mesh, groups, SGD(groups, lr=0.1), bytes_per_bucket=3000, stage=3)
    how: dict[str, Any] = {"schedule": schedule, "recompute": recompute}
    replica = PipelineParallel(stage, whole_loss, sync, mesh, microbatches=microbatches, **how)
    for _ in range(2):
        replica.forward_backward(Batch(tokens, tokens, 2 * tokens.size))
        sync.step()
    after = comm.counters

    def times(pipe: int, bucket_of: dict[str, int]) -> list[int]:
        program = schedules.SCHEDULES[schedule](2, pipe, microbatches, chunks)
        mine = [pieces[runs[chunk * 2 + pipe]] for chunk in range(chunks)]
        last = chunks - 1 if pipe == 1 else None
        return plan.fetches(
            plan.order(program, mine, bucket_of, recompute, last), max(bucket_of.values()) + 1
        )

    # The tied embedding is a bucket of its own; the other end of the pipe has it, too, between buckets of its own.
    here = mesh.coordinates["pipe"]
    names = [[p.name for p in bucket.parameters] for bucket in sync.buckets]
    letters = np.frombuffer(json.dumps(names).ljust(4000).encode(), np.uint8)[None]
    everyone = [json.loads(row.tobytes()) for row in comm.all_gather(letters)]
    of_rank = [{name: i for i, bucket in enumerate(theirs) for name in bucket} for theirs in everyone]
    fetched = [times(rank % 2, of_rank[rank]) for rank in range(4)]
    answers = []
    for bucket in sync.buckets:
        members = range(4) if len(bucket.group.axes) > 1 else (here, here + 2)
        name = bucket.parameters[0].name
        answers.append(sum(fetched[r][of_rank[r][name]] for r in members if r != comm.rank))
    traffic = plan.bytes_per_step(shared(sync), 3, fetched[comm.rank], answers)
    expected = {purpose: cost * 2 for purpose, cost in traffic.items()}
    expected["control"] += all_reduce(1, 8, comm.rank, 4) * 2  # the norm
    for group in groups:
        over = mesh.comm(*group.axes)
        expected["weights"] += broadcast(
            group.dtype.itemsize * sum(e.size for e in group.layout), over.rank, over.size
        )
    for purpose, cost in expected.items():
        assert tuple(np.subtract(after[purpose], before[purpose])) == (cost.messages, cost.bytes), purpose
    sync.finish()
