"""What this rank sends in one step: the split's lines, then the sync's.

    split_lines    activations, of microbatches as they will be cut
    sync_lines     gradients and weights, and a few numbers of control

Here the rules of `minidist/plan/` meet the objects that were built. Ranks talk in one case alone: who holds shards of
weights (ZeRO's stage 3) is told how often others will ask for them. Read next: `forecast.py`, which adds up a run.
"""

import argparse
import math
from collections.abc import Iterator

import numpy as np

from minidist.data import Dataset
from minidist.plan import splits, syncs, zero
from minidist.plan.sent import Sent, all_reduced
from minidist.plan.traffic import Traffic, even
from minidist.split import schedules
from minidist.split.pipedream import PipeDream
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.sync.data_parallel import DataParallel
from minidist.sync.model_averaging import ModelAveraging
from minidist.sync.parameter_server import ParameterServer
from minidist.sync.zero import Zero
from minidist.train.setup import Setup, as_model_input, declare_model


def batch_sizes(options: argparse.Namespace, dataset: Dataset) -> list[int]:
    """Give the examples in the global batch of every step of a run."""
    n = len(dataset.train_inputs)
    epoch = [min(options.batch, n - start) for start in range(0, n, options.batch)]
    steps = options.steps or options.epochs * len(epoch)
    return (epoch * math.ceil(steps / len(epoch)))[:steps]


def shares(options: argparse.Namespace, setup: Setup, count: int) -> list[int]:
    """Give the examples of each replica in a step with so many in all."""
    return even(count, setup.mesh.size("data"))


def microbatch_sizes(options: argparse.Namespace, examples: int) -> list[list[int]]:
    """Give the sizes of the microbatches that a replica of a pipeline makes of its examples, for each accumulation."""
    rounds = [n for n in even(examples, options.accumulate) if n]
    return [[m for m in even(n, options.microbatches) if m] for n in rounds]


def most_microbatches(options: argparse.Namespace, setup: Setup, count: int) -> list[list[int]]:
    """Give these sizes for the replica that has the most of so many examples."""
    return microbatch_sizes(options, max(shares(options, setup, count)))


def split_lines(options: argparse.Namespace, dataset: Dataset, setup: Setup, count: int) -> Iterator[Sent]:
    """Say what this rank's replica sends within itself."""
    mesh, model, replica = setup.mesh, setup.model, setup.replica
    itemsize = np.dtype(options.dtype).itemsize
    examples = shares(options, setup, count)[mesh.coordinates["data"]]
    targets = dataset.train_labels[0].size
    if isinstance(replica, PipelineParallel):
        sizes = [n for part in microbatch_sizes(options, examples) for n in part]
        runs = replica.stage.runs
        borders = [splits.numbers_after(model, run.stop - 1) for run in runs[:-1]]
        here = runs[replica.rank :: replica.stages]
        yield from splits.pipeline(replica.comm, borders, replica.chunks, sizes, itemsize)
    else:
        sizes = [n for n in even(examples, options.accumulate) if n]
        here = [slice(0, len(model.pieces()))]
    if isinstance(replica, PipeDream):
        counts = all_reduced(mesh.comm("data"), options.microbatches, 8)
        yield Sent("data", "control", "sizes of microbatches", counts)
    if mesh.axes.get("tensor", 1) > 1:
        comm, last = mesh.comm("tensor"), len(model.pieces())
        layers, losses = Traffic(), Traffic()
        for run in here:
            split = splits.split_layers(model, range(run.start, run.stop))
            # Behind the last piece the first forward is left out.
            again = options.recompute and run.stop < last
            for n in sizes:
                layers += splits.tensor(comm, split, n, targets, splits.in_pieces(model), itemsize, again)
                if run.stop == last and splits.classes_are_split(model):
                    losses += splits.split_loss(comm, n * targets, itemsize)
        yield Sent("tensor", "activation", "values between split layers", layers)
        yield Sent("tensor", "activation", "for the loss over split classes", losses)


def sync_lines(
    options: argparse.Namespace, dataset: Dataset, setup: Setup, count: int, early: bool
) -> Iterator[Sent]:
    """Say what this rank's sync sends in a step; early: in averaging's warm-up."""
    mesh, sync, groups = setup.mesh, setup.sync, setup.groups
    if isinstance(sync, DataParallel):
        updates = 1
        if isinstance(setup.replica, PipeDream):  # one for each microbatch that some replica has
            updates = min(options.microbatches, max(shares(options, setup, count)))
        for line in syncs.gradients_summed(mesh, sync.buckets):
            yield Sent(line.axes, line.purpose, line.what, line.traffic * updates)
        yield from syncs.norm(mesh)
    elif isinstance(sync, Zero):
        yield from _zero_step(options, dataset, setup, count)
    elif isinstance(sync, ModelAveraging):
        yield from (syncs.groups_summed if early else syncs.completed)(mesh, groups)
        yield from syncs.norm(mesh)
    elif isinstance(sync, ParameterServer):
        yield from syncs.completed(mesh, groups)
        yield from syncs.pushed(sync.parts)
        if not sync.lockstep:
            yield from syncs.norm(mesh)
        yield from syncs.handed_on(mesh, groups)
    else:
        raise TypeError(f"nobody knows what {type(sync).__name__} sends")
    if not sync.lockstep:
        yield from syncs.own_loss(mesh)


# ---- ZeRO


def shared_buckets(sync: Zero) -> list[zero.Shared]:
    """Say how each bucket is shared out."""
    return [
        zero.Shared(
            s.bucket.size, s.bucket.group.dtype.itemsize, s.comm.rank, s.comm.size, s.bucket.group.axes
        )
        for s in sync.shards
    ]


def _zero_step(options: argparse.Namespace, dataset: Dataset, setup: Setup, count: int) -> Iterator[Sent]:
    sync = setup.sync
    assert isinstance(sync, Zero)
    asked: list[int] = []
    answers: list[int] = []
    if sync.stage == 3:
        asked = _fetches(
            options, dataset, setup, shares(options, setup, count)[setup.mesh.coordinates["data"]]
        )
        # All at once and not one after another: ranks of other stages have other buckets.
        requests = [
            shard.comm.iall_gather(np.array([times]), purpose="control")
            for shard, times in zip(sync.shards, asked, strict=True)
        ]
        answers = [int(r.wait().sum()) - times for r, times in zip(requests, asked, strict=True)]
    buckets = shared_buckets(sync)
    for axes in dict.fromkeys(bucket.axes for bucket in buckets):
        which = [bucket.index for bucket in sync.buckets if bucket.group.axes == axes]
        mine = [buckets[i] for i in which]
        ask, answer = ([times[i] for i in which] if times else [] for times in (asked, answers))
        sent = zero.bytes_per_step(mine, sync.stage, ask, answer)
        along, what = "+".join(axes), f"{len(mine)} bucket{'s' * (len(mine) > 1)}"
        yield Sent(along, "gradient", f"{what}, summed and shared out", sent["gradient"])
        if sync.stage < 3:
            yield Sent(along, "weights", f"{what}, gathered", sent["weights"])
        else:
            yield Sent(along, "weights", f"{sum(answer)} fetches by others, answered", sent["weights"])
            yield Sent(along, "control", f"{sum(ask)} fetches, asked for", sent["control"])
    yield from syncs.norm_of_all(setup.mesh)


def _fetches(options: argparse.Namespace, dataset: Dataset, setup: Setup, examples: int) -> list[int]:
    """Count how often this rank fetches each bucket in a step with so many examples."""
    sync, replica = setup.sync, setup.replica
    assert isinstance(sync, Zero)
    one = as_model_input(dataset.train_inputs[:1], "float32")  # a declared model is of float32
    reads = zero.piece_reads(declare_model(options, dataset), one)
    bucket_of = {parameter.name: b.index for b in sync.buckets for parameter in b.parameters}
    order: list[int] = []
    if isinstance(replica, PipelineParallel):
        chunks = [reads[run] for run in replica.stage.runs[replica.rank :: replica.stages]]
        last = replica.chunks - 1 if replica.is_last(replica.chunks - 1) else None
        for sizes in microbatch_sizes(options, examples):
            program = replica.program(replica.schedule, len(sizes))
            order += zero.order(program, chunks, bucket_of, options.recompute, last)
    else:
        rounds = sum(1 for n in even(examples, options.accumulate) if n)
        order = zero.order(schedules.naive(1, 0, rounds), [reads], bucket_of)
    return zero.fetches(order, len(sync.buckets))


def zero_end(setup: Setup) -> list[Sent]:
    """Say what it takes to have all weights whole again: nobody fetches any more, then all shards are gathered."""
    assert isinstance(setup.sync, Zero)
    buckets = shared_buckets(setup.sync)
    nobody = [0] * len(buckets)
    closing = zero.bytes_per_step(buckets, 3, nobody, nobody)["control"]
    gathered = zero.bytes_per_step(buckets, 1)["weights"]
    return [
        Sent("all", "control", "no more fetches", closing),
        Sent("all", "weights", "shards, gathered", gathered),
    ]
