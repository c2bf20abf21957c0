"""What a run shows besides numbers, by `--trace`, `--plot`, `--report`: how it is recorded, and who makes it.

Every rank records (minidist/trace/record.py) if anything was asked for, and nothing is in its way if not. After the
training rank 0 gets the timeline of all ranks, and hands it to each output that was asked for.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minidist.comm import Communicator
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.sync.server import Server
from minidist.trace import chrome, page
from minidist.trace.gather import gather
from minidist.trace.page.contents import contents
from minidist.trace.plot.one_page import check_picture, one_page, save
from minidist.trace.record import Recorder
from minidist.trace.timeline import Timeline
from minidist.train import about
from minidist.train.report import check_writable, write_whole
from minidist.train.setup import Setup
from minidist.train.stories import Story

OUTPUTS = ("trace", "plot", "report")  # options with the path of a file that is made of the run's timeline


def check(options: argparse.Namespace) -> None:
    """Refuse a path that cannot be written, before anything is trained."""
    for name in OUTPUTS:
        if (path := getattr(options, name)) is not None:
            check_writable(path, f"--{name}")
    if options.plot is not None:
        check_picture(options.plot)


def recorder(options: argparse.Namespace, comm: Communicator) -> Recorder | None:
    """Make a recorder if something is to be made of what it records; before `comm` is split."""
    return Recorder(comm) if any(getattr(options, name) is not None for name in OUTPUTS) else None


@contextmanager
def recording(recorder: Recorder | None, what: Setup | Server) -> Iterator[None]:
    """Record what a worker or a server does meanwhile; a collective of all of them."""
    if recorder is None:
        yield
        return
    if isinstance(what, Server):
        recorder.mark_steps(what, "_push", times=what.link.workers)
        for stock in what.stocks.values():
            recorder.mark(stock.optimizer, "update", "update")
    else:
        follow(recorder, what)
    with recorder:
        yield


def follow(recorder: Recorder, setup: Setup) -> None:
    """Mark what a worker computes, and by which names."""
    replica, sync = setup.replica, setup.sync
    piped = isinstance(replica, PipelineParallel)
    where = ("microbatch", "chunk") if piped else ("microbatch",)
    recorder.mark_steps(replica, "forward_backward")
    recorder.mark(replica, "forward", "forward", *where)
    recorder.mark(replica, "backward", "backward", *where)
    if piped:
        recorder.mark(replica, "weights", "weights", *where)
        recorder.mark_messages(replica, "tag")
    recorder.mark_walks(replica)
    if hasattr(sync, "optimizer"):
        recorder.mark(sync.optimizer, "update", "update")
    for name, part in setup.model.parts():
        if hasattr(part, "forward"):
            recorder.mark_layer(part, name)


def collect(recorder: Recorder | None) -> Timeline | None:
    """Give rank 0 the timeline of all ranks, who all call this."""
    return None if recorder is None else gather(recorder)


def show(
    options: argparse.Namespace,
    timeline: Timeline | None,
    result: dict[str, Any],
    told: Sequence[Story],
    work: dict[str, tuple[float, float]],
) -> None:
    """Make what was asked for of a run's timeline, result and (for a page) stories; on rank 0 alone.

    work: operations and bytes of a step's forward through each of this rank's layers.
    """
    if timeline is None:
        return
    timeline.facts.update(
        command=about.command("minidist.train"),
        **{name: result[name] for name in ("mode", "mesh", "sync", "servers", "model", "transport")},
        schedule=options.schedule if "pipe" in result["mesh"] else None,
        zero=options.zero,
        losses=result["loss_history"],
        accuracy=result["accuracy"],
        accuracies=result["accuracy_history"],
        dtype=options.dtype,
        work=work,
        seconds=result["seconds"],
        of_steps=result["steps"],
    )
    if options.trace is not None:
        write_whole(options.trace, "--trace", lambda path: chrome.write(timeline, path))
    if options.report is not None:
        plain = contents(timeline, about.of_run(result, told))
        write_whole(options.report, "--report", lambda path: page.write(plain, path))
    if options.plot is not None:
        drawn, suffix = one_page(timeline), Path(options.plot).suffix
        write_whole(options.plot, "--plot", lambda path: save(drawn, path, suffix))
