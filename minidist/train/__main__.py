"""Train a model on one rank, or on all that mpiexec starts: `mpiexec -n 4 python -m minidist.train`.

Read `train` from top to bottom: every rank executes it, and that is the whole of distributed training. The two lines
that matter are `replica.forward_backward(batch)` (minidist/split/) and `sync.step()` (minidist/sync/); which of them a
run has is settled in arrangement.py and built in setup.py. What can be said on the command line is in options.py, what
is shown in report.py. What a run will send is known beforehand (forecast.py): `--explain` prints it and trains nothing.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minidist import data
from minidist.comm import PURPOSES, Communicator, guard, leaving, stopping, world
from minidist.data import Dataset, loader
from minidist.errors import UserError
from minidist.split.gather import whole_weights
from minidist.split.replica import Batch
from minidist.sync.parameter_server import Link
from minidist.sync.server import Server
from minidist.trace.record import Recorder
from minidist.trace.shares import Shares
from minidist.train import explain, mode_options, nonfinite, see, stories
from minidist.train.accuracy import AccuracyCurve
from minidist.train.agree import agree
from minidist.train.arrangement import Arrangement, arrange
from minidist.train.forecast import forecast, forecast_server, total
from minidist.train.forecast_step import batch_sizes
from minidist.train.history import History
from minidist.train.introduction import introduce
from minidist.train.keeping import Keeping
from minidist.train.options import parse
from minidist.train.ranks import Ranks
from minidist.train.report import check_writable, closing_table, say, write_json
from minidist.train.results import (
    costs_of_all,
    evaluate,
    fingerprint,
    sample,
    sent_so_far,
)
from minidist.train.scalars import Scalars
from minidist.train.scalars import check as check_tensorboard
from minidist.train.setup import Setup, as_model_input, build_optimizer, check_fits, set_up
from minidist.train.watch import Watch

SIGTERM = 143  # the exit code of a training that has stopped in order because of that signal: 128 + 15


def run(options: argparse.Namespace, comm: Communicator) -> dict[str, Any]:
    """Do what the options say, and give rank 0 what `--json` writes. Every rank calls this with the same options."""
    arrangement = arrange(options, comm.size)
    mode_options.settle(options, arrangement)
    check_fits(options, arrangement)
    if comm.rank == 0:
        data.prepare(options.data, options.data_dir)  # one rank downloads ...
    comm.barrier(purpose="control")
    dataset = data.load(options.data, options.data_dir)  # ... and all read
    path = agree(comm, options, dataset)
    with stopping.on_sigterm(comm, arrangement.workers) as stop:
        keeping = Keeping(options, arrangement, dataset, comm, path, stop)
        scalars = Scalars(options, comm) if options.tensorboard and comm.rank == 0 else None
        try:
            result = run_with(options, comm, arrangement, dataset, path, keeping, scalars)
        finally:
            keeping.close()
            if scalars:
                scalars.close()
        return {"stopped": True} if stop.stopped else result


def run_with(
    options: argparse.Namespace,
    comm: Communicator,
    arrangement: Arrangement,
    dataset: Dataset,
    path: str,
    keeping: Keeping,
    scalars: Scalars | None,
) -> dict[str, Any]:
    """Do it, now that all ranks agree on what and how."""
    # Before the recorder, which takes away what it has put in the way.
    shares = Shares(comm.progress) if options.ranks and not options.quiet else None
    recorder = see.recorder(options, comm)
    link = Link(comm, arrangement.workers) if arrangement.servers else None
    workers = link.peers if link else comm
    if link and link.serves:
        server = Server(link, build_optimizer(options, []))
        keeping.resume(server)
        if options.explain or options.report:
            stories.gather(comm, stories.server_story(options, dataset, server))
        if options.explain:
            return {}
        server.save = keeping.save
        before = sent_so_far(comm)
        with see.recording(recorder, server):
            server.run()
        see.collect(recorder)
        sent = sent_so_far(comm) - before - keeping.sent
        costs_of_all(comm, sent, total(forecast_server(options, dataset, server, keeping.begun)))
        return {}
    setup = set_up(options, dataset, workers, arrangement, link)
    if comm.rank == 0 and not options.quiet:
        introduce(options, comm, arrangement, dataset, setup.model, path)
    keeping.resume(setup.sync)
    occasions = forecast(options, dataset, setup, keeping.begun)
    told = []
    if options.explain or options.report:
        told = stories.gather(comm, stories.worker_story(options, dataset, setup, occasions))
    if options.explain:
        if comm.rank == 0:
            say(explain.tell(options, dataset, arrangement, setup, told))
        return {}
    with see.recording(recorder, setup):
        history, seconds, waited = train(options, dataset, setup, keeping, shares, scalars, recorder)
    timeline = see.collect(recorder)
    costs = costs_of_all(comm, history.sent, total(occasions))
    if keeping.stopped:
        keeping.say_stopped()
        return {}
    accuracy = evaluate(setup, dataset, options)
    if scalars:
        scalars.end(accuracy)
    weights = whole_weights(setup.mesh, setup.groups)
    if weights is None or comm.rank:
        return {}
    result = {
        "mode": arrangement.mode,
        "mesh": arrangement.axes,
        "sync": arrangement.sync,
        "servers": arrangement.servers,
        "model": options.model,
        "world_size": comm.size,
        "transport": comm.transport,
        "kernels": path,
        "parameters": sum(array.size for array in weights.values()),
        "steps": len(history.losses),
        "loss_history": history.losses,
        "grad_norm_history": history.norms,
        "accuracy": accuracy,
        "accuracy_history": [*history.accuracies, (len(history.losses), accuracy)],
        "test_targets": dataset.test_labels.size,
        "examples_per_second": history.examples / seconds,
        "seconds": seconds,
        "communication": waited / seconds,
        **costs,
        "shared_memory": getattr(setup.sync, "shared", False),
        "parameters_sha256": fingerprint(weights, setup.model),
        "sample": sample(weights, dataset, options) if options.sample else None,
    }
    see.show(options, timeline, result, told)
    return result


def train(
    options: argparse.Namespace,
    dataset: Dataset,
    setup: Setup,
    keeping: Keeping,
    shares: Shares | None = None,
    scalars: Scalars | None = None,
    recorder: Recorder | None = None,
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
    epoch_steps = -(-n // options.batch)
    if scalars:
        scalars.begin(begun, epoch_steps)
    watch = Watch(setup, options.check_every, n) if options.check_every else None
    curve = AccuracyCurve(options, dataset, setup, recorder)
    before = sent_so_far(comm)
    comm.barrier(purpose="control")  # so nobody's first step counts in what another sends before its own
    began, waited = time.perf_counter(), comm.progress.seconds
    ranks = Ranks(setup.mesh, shares, history.progress, epoch_steps) if shares else None
    for epoch, rows, count in plan(options, n, begun, steps, mesh.coordinates["data"], mesh.size("data")):
        inputs = as_model_input(dataset.train_inputs[rows], options.dtype)
        divisor = sync.divisor(len(rows) * targets, count * targets)
        if comm.recorder:
            comm.recorder.step = history.steps + 1
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
        if watch:
            watch.step(epoch, rows, count)
        if ranks:
            ranks.step(history.steps, last, sync.lockstep)
        if scalars:
            scalars.step(history)
        curve.step(history.steps, last)
        if last:
            break
    if watch:
        watch.finish()
    sync.finish()
    history.finish()
    history.sent = sent_so_far(comm) - before - keeping.sent - curve.sent
    history.accuracies = curve.points
    if scalars:
        scalars.step(history)
    history.sent[PURPOSES.index("guard")] = 0  # what is sent to watch a training is no part of it
    waited = comm.progress.seconds - waited - curve.waited
    return history, time.perf_counter() - began - curve.seconds, waited


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, build, run, report; return the exit code."""
    comm = None
    try:
        comm = world()
        options = parse(sys.argv[1:] if arguments is None else arguments)
        if options.help is not None:
            if comm.rank == 0:
                say(options.help)
            return 0
        if comm.rank == 0:
            if options.json:
                check_writable(options.json)
            see.check(options)
            check_tensorboard(options)
        if options.guard:
            guard.watch(comm)
        with np.errstate(all="ignore"):  # what is not finite is found in nonfinite.py, on all ranks together
            result = run(options, comm)
        if result.get("stopped"):
            leaving.farewell()  # the exit code is no failure of this rank
            return SIGTERM
        if options.explain:
            return 0
        if comm.rank == 0 and not options.quiet:
            say(closing_table(result, "characters" if options.data == "text" else "images"))
            if result["sample"] is not None:
                say(f"\nthe model writes:\n{result['sample']}")
        if comm.rank == 0 and options.json:
            write_json(options.json, result)
    except UserError as error:
        if comm is not None and comm.size > 1:
            raise  # comm/leaving.py prints it, once for all ranks, and ends them
        print(f"minidist.train: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
