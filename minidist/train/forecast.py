"""What this rank will send in a run, and what it will hold, worked out when everything is built and nothing has begun.

    set-up | together | step step step step (average) step ... last step of the epoch, a short one ... | the end

A run is a list of *occasions*: something that happens so many times, and what this rank sends each time. `--explain`
prints them (`explain.py`), and every training adds them up and writes the sum into its JSON ("predicted") beside what
its counters have counted ("sent_in_steps"). The two are equal, in every mode. The rules stand in `minidist/plan/`.
Read next: `forecast_step.py`, for one step.
"""

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidist.comm import PURPOSES
from minidist.data import Dataset
from minidist.plan import syncs, traffic
from minidist.plan.sent import Sent, by_purpose
from minidist.sync.model_averaging import ModelAveraging, gaps
from minidist.sync.parameter_server import ParameterServer
from minidist.sync.server import Server
from minidist.sync.zero import Zero
from minidist.train.forecast_step import batch_sizes, split_lines, sync_lines, zero_end
from minidist.train.setup import Setup


@dataclass(frozen=True)
class Occasion:
    """Something that happens `times` times in a run, and what this rank sends each time."""

    what: str
    times: int
    lines: list[Sent]


def total(occasions: Iterable[Occasion]) -> np.ndarray:
    """Add up a run: int64 of shape (purposes, 2), messages and bytes, as `results.sent_so_far` gives it."""
    table = np.zeros((len(PURPOSES), 2), np.int64)
    for occasion in occasions:
        for purpose, sent in by_purpose(occasion.lines).items():
            table[PURPOSES.index(purpose)] += np.array([sent.messages, sent.bytes]) * occasion.times
    return table


def forecast(options: argparse.Namespace, dataset: Dataset, setup: Setup, begun: int = 0) -> list[Occasion]:
    """List all occasions of a run on a worker, from its first step to the end of `sync.finish()`. A collective.

    begun: steps that were done before, by a run that this one goes on with.
    """
    mesh, sync, groups = setup.mesh, setup.sync, setup.groups
    sizes = batch_sizes(options, dataset)
    all_steps, sizes = len(sizes), sizes[begun:]
    warm = max(0, min(all_steps, options.warm_up) - begun) if isinstance(sync, ModelAveraging) else 0
    found = []
    for (count, early), times in Counter((c, step < warm) for step, c in enumerate(sizes)).items():
        what = "step of the warm-up" if early else "step"
        lines = [
            *split_lines(options, dataset, setup, count),
            *sync_lines(options, dataset, setup, count, early),
        ]
        lines += syncs.loss(mesh.everyone)
        found.append(Occasion(f"{what}, of {count} examples", times, lines))
    barrier = Sent("all", "control", "to begin together", traffic.barrier(mesh.everyone.size))
    found.append(Occasion("start", 1, [barrier]))
    if isinstance(sync, ModelAveraging):
        slots = len(sync.optimizer.slots) if options.average_state == "average" else 0
        lines = syncs.averaged(mesh, groups, 1 + slots)
        plan = options.average_every, options.average_growth
        before = averages_before(begun - options.warm_up, *plan)
        times = averages(all_steps - options.warm_up, *plan) - before
        found.append(Occasion(f"average, after {_gaps(options)}", times, lines))
    if isinstance(sync, ParameterServer):
        lines = [*syncs.left(len(sync.parts)), *syncs.handed_on(mesh, groups)]
        found.append(Occasion("end", 1, lines))
    if isinstance(sync, Zero) and sync.stage == 3:
        found.append(Occasion("end", 1, zero_end(setup)))
    return found


def averages_before(steps: int, every: int, growth: float) -> int:
    """Count the averages of so many steps, without one at the end."""
    count = 0
    for gap in gaps(every, growth):
        if steps < gap:
            return count
        steps, count = steps - gap, count + 1
    return count


def averages(steps: int, every: int, growth: float) -> int:
    """Count the averages of so many steps, with the one at the end for the steps behind the last."""
    return averages_before(steps - 1, every, growth) + 1 if steps > 0 else 0


def _gaps(options: argparse.Namespace) -> str:
    steps = f"{options.average_every} step{'s' * (options.average_every > 1)}"
    growing = (
        f", then {options.average_growth:g} times as many each time" if options.average_growth > 1 else ""
    )
    return steps + growing


def forecast_server(
    options: argparse.Namespace, dataset: Dataset, server: Server, begun: int = 0
) -> list[Occasion]:
    """List all occasions of a run on a server."""
    sizes = [[shard.weights.nbytes for shard in stock.shards] for stock in server.stock_of]
    lines = syncs.answered(sizes)
    norm = syncs.servers_norm(server.link.peers) if server.clock.slack == 0 else []
    steps = len(batch_sizes(options, dataset)) - begun
    return [Occasion("step of all workers", steps, [*lines, *norm]), Occasion("end", 1, lines)]
