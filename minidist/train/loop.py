"""The training loop: every rank executes it, and that is the whole of distributed training.

The two lines that matter are `replica.forward_backward(batch)` (minidist/split/) and `sync.step()` (minidist/sync/);
which of them a run has is settled in arrangement.py and built in setup.py. The rest is for those who want to know how
it went.

Read next: `run.py`, what is done before and after it; `onlooker.py`, who looks on.
"""

import argparse
import time
from collections.abc import Iterator, Sequence

import numpy as np

from minidist.comm import PURPOSES
from minidist.data import Dataset, loader
from minidist.errors import UserError
from minidist.split.replica import Batch
from minidist.train import nonfinite
from minidist.train.forecast_step import batch_sizes
from minidist.train.history import History
from minidist.train.keeping import Keeping
from minidist.train.onlooker import Onlooker, Step
from minidist.train.results import sent_so_far
from minidist.train.setup import Setup, as_model_input
from minidist.train.watch import Watch


def train(
    options: argparse.Namespace,
    dataset: Dataset,
    setup: Setup,
    keeping: Keeping,
    onlookers: Sequence[Onlooker] = (),
) -> tuple[History, float, float]:
    """Train; return the history, the seconds that it took, and how many of them this rank was waiting."""
    mesh, sync, replica = setup.mesh, setup.sync, setup.replica
    comm = mesh.everyone
    n = len(dataset.train_inputs)
    targets = dataset.train_labels[0].size  # per example: 1, or one for each position of a text
    steps = len(batch_sizes(options, dataset))
    begun = keeping.begun
    if begun > steps:
        raise UserError(
            f"the checkpoint is of step {begun}, and the training ends with step {steps}: give more --steps or --epochs"
        )
    history = History(comm, steps, comm.rank == 0 and not options.quiet)
    keeping.record(history)
    if options.check_every:
        onlookers = [*onlookers, Watch(setup, options.check_every, n)]
    before = sent_so_far(comm)
    comm.barrier(purpose="control")  # so nobody's first step counts in what another sends before its own
    began, waited = time.perf_counter(), comm.progress.seconds
    for onlooker in onlookers:
        onlooker.begin(history)
    for epoch, rows, count in plan(options, n, begun, steps, mesh.coordinates["data"], mesh.size("data")):
        if comm.recorder:
            comm.recorder.step = history.steps + 1
        inputs = as_model_input(dataset.train_inputs[rows], options.dtype)
        divisor = sync.divisor(len(rows) * targets, count * targets)
        batch = Batch(inputs, dataset.train_labels[rows], divisor)
        loss = replica.forward_backward(batch)
        loss *= divisor / (count * targets)  # this rank's share of the mean over the global batch
        total = comm.iall_reduce(np.array(loss), purpose="control")
        found = nonfinite.search_forward(setup, batch, loss, total)  # before the update hides it
        norm = sync.step()
        history.step(epoch, count, total, norm, sync.lockstep)
        summed = history.losses[-1] if sync.lockstep else loss
        nonfinite.check(options, setup, batch, history.steps, summed, norm, found)
        last = keeping.after(history.steps, steps)
        for onlooker in onlookers:
            onlooker.step(Step(history.steps, epoch, rows, count, last))
        if last:
            break
    for onlooker in onlookers:
        onlooker.finish()
    sync.finish()
    history.finish()
    looking = sum((onlooker.sent for onlooker in onlookers), keeping.sent)
    history.sent = sent_so_far(comm) - before - looking
    history.sent[PURPOSES.index("guard")] = 0  # what is sent to watch a training is no part of it
    seconds = time.perf_counter() - began - sum(onlooker.seconds for onlooker in onlookers)
    return history, seconds, comm.progress.seconds - waited - sum(onlooker.waited for onlooker in onlookers)


def plan(
    options: argparse.Namespace, n: int, begun: int, steps: int, replica: int, replicas: int
) -> Iterator[tuple[int, np.ndarray, int]]:
    """Yield (epoch, this replica's rows, examples in the global batch) for every step from number `begun` on."""
    step = epoch = 0
    while step < steps:
        epoch += 1
        for rows, count in loader.read(n, options.batch, options.seed, epoch, replica, replicas):
            if step == steps:
                return
            if step >= begun:
                yield epoch, rows, count
            step += 1
