"""One run from its options to its result: prepare, build, train, and say how it went. Every rank does this.

    options -> arrangement -> workers: set_up -> train (loop.py) -> evaluate -> result
                           -> servers: Server.run

What a run will send is known beforehand (forecast.py): `--explain` prints it and trains nothing. Read next: `loop.py`.
"""

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidist import data
from minidist.comm import Communicator, stopping
from minidist.data import Dataset
from minidist.plan.operations import forward_of_layers
from minidist.split.gather import whole_weights
from minidist.sync.parameter_server import Link
from minidist.sync.server import Server
from minidist.trace.record import Recorder
from minidist.trace.shares import Shares
from minidist.train import explain, mode_options, see, stories
from minidist.train.accuracy import AccuracyCurve
from minidist.train.agree import agree
from minidist.train.arrangement import Arrangement, arrange
from minidist.train.forecast import forecast, forecast_server, total
from minidist.train.introduction import introduce
from minidist.train.keeping import Keeping
from minidist.train.loop import train
from minidist.train.onlooker import Onlooker
from minidist.train.ranks import Ranks
from minidist.train.report import say
from minidist.train.results import costs_of_all, evaluate, fingerprint, sample, sent_so_far
from minidist.train.scalars import Scalars
from minidist.train.setup import Setup, build_optimizer, check_fits, set_up


@dataclass(frozen=True)
class Run:
    """What all of a run's parts need: what was asked for, of whom, on which data, and what is kept of it."""

    options: argparse.Namespace
    comm: Communicator
    arrangement: Arrangement
    dataset: Dataset
    path: str  # of the kernels that all ranks take
    keeping: Keeping

    @property
    def epoch(self) -> int:
        """Count the steps of an epoch."""
        return -(-len(self.dataset.train_inputs) // self.options.batch)


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
        this = Run(options, comm, arrangement, dataset, path, keeping)
        # Before the recorder, which takes away what it has put in the way.
        shares = Shares(comm.progress) if options.ranks and not options.quiet else None
        recorder = see.recorder(options, comm)
        link = Link(comm, arrangement.workers) if arrangement.servers else None
        try:
            if link and link.serves:
                result = serve(this, link, recorder)
            else:
                result = work(this, link, recorder, shares)
        finally:
            keeping.close()
        return {"stopped": True} if stop.stopped else result


def serve(this: Run, link: Link, recorder: Recorder | None) -> dict[str, Any]:
    """Be a server until the workers are done."""
    options, comm, dataset, keeping = this.options, this.comm, this.dataset, this.keeping
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


def work(this: Run, link: Link | None, recorder: Recorder | None, shares: Shares | None) -> dict[str, Any]:
    """Be a worker: train, and give rank 0 the result."""
    options, comm, arrangement, dataset = this.options, this.comm, this.arrangement, this.dataset
    keeping = this.keeping
    setup = set_up(options, dataset, link.peers if link else comm, arrangement, link)
    if comm.rank == 0 and not options.quiet:
        introduce(options, comm, arrangement, dataset, setup.model, this.path)
    keeping.resume(setup.sync)
    occasions = forecast(options, dataset, setup, keeping.begun)
    told = []
    if options.explain or options.report:
        told = stories.gather(comm, stories.worker_story(options, dataset, setup, occasions))
    if options.explain:
        if comm.rank == 0:
            say(explain.tell(options, dataset, arrangement, setup, told))
        return {}
    with scalars_of(this) as scalars:
        looking = onlookers(this, setup, recorder, shares) + ([scalars] if scalars else [])
        with see.recording(recorder, setup):
            history, seconds, waited = train(options, dataset, setup, keeping, looking)
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
        "kernels": this.path,
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
    share = -(-options.batch // setup.mesh.size("data"))
    inputs = math.prod(dataset.train_inputs.shape[1:])
    work = forward_of_layers(setup.model, share, inputs, np.dtype(options.dtype).itemsize)
    see.show(options, timeline, result, told, work)
    return result


def onlookers(this: Run, setup: Setup, recorder: Recorder | None, shares: Shares | None) -> list[Onlooker]:
    """List who looks on, on every worker."""
    looking: list[Onlooker] = []
    if shares:
        looking.append(Ranks(setup.mesh, setup.sync.lockstep, shares, this.epoch))
    if (this.options.report or this.options.plot) and recorder:
        looking.append(AccuracyCurve(this.options, this.dataset, setup, recorder))
    return looking


@contextmanager
def scalars_of(this: Run) -> Iterator[Scalars | None]:
    """Give rank 0 who writes for TensorBoard, if that is asked for, and close the file in the end."""
    if this.options.tensorboard is None or this.comm.rank:
        yield None
        return
    scalars = Scalars(this.options, this.comm, this.epoch)
    try:
        yield scalars
    finally:
        scalars.close()
