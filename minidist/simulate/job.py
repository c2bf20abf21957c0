"""Play a whole job: every rank if their messages are few enough, else one replica that stands for all.

    data=64, pipe=16     1024 ranks; replicas do the same at the same time, so the 16 ranks of one are played;
                         a collective over data takes the time of its closed formula (`plan/cost.py`)

The formula knows that other groups use the same cards then; that a pipeline's messages use them too it does not. Which
of the two was done stands in the timeline's facts. Servers are where all workers meet, so with them all are played.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minidist.plan import sent, traffic
from minidist.plan.cluster import Cluster
from minidist.plan.simulate import play
from minidist.simulate.costs import Costs
from minidist.simulate.imagine import Imagination
from minidist.simulate.program import Program
from minidist.simulate.serving import serving
from minidist.trace.timeline import Timeline
from minidist.train.forecast import forecast
from minidist.train.setup import Setup

MOST = 200_000  # messages that are played one by one: some seconds
MOST_SPANS = 200_000  # that are written down once more for replicas that were not played


def simulate(
    job: Imagination, cluster: Cluster, costs: Costs, steps: int = 1, all_ranks: bool | None = None
) -> Timeline:
    """Play so many steps; the timeline's facts have the seconds of one. all_ranks: None: if there are few messages."""
    workers, replicas = job.arrangement.workers, job.arrangement.axes["data"]
    first = job.worker(0)
    servers = job.ranks - workers
    if all_ranks is None:
        all_ranks = servers > 0 or replicas == 1 or messages(job, first) * job.ranks * steps <= MOST
    ranks = range(workers if all_ranks else workers // replicas)
    setups = [first, *(job.worker(rank) for rank in ranks[1:])]
    programs = {
        rank: Program(job.options, job.dataset, setup, costs).acts(steps) for rank, setup in enumerate(setups)
    }
    for server in range(servers):
        programs[workers + server] = serving(job, setups, server, costs, steps)
    timeline = play(programs, cluster, job.ranks, flows=all_ranks)
    if not all_ranks and timeline.ranks == job.ranks:
        repeat(timeline, workers // replicas, replicas)
    timeline.facts.update(
        mesh=job.arrangement.axes,
        sync=job.arrangement.sync,
        servers=servers,
        schedule=job.options.schedule if "pipe" in job.arrangement.axes else None,
        steps=steps,
        seconds_per_step=timeline.stop / steps,
        played="all ranks" if all_ranks else f"one of {replicas} replicas, which do the same",
    )
    return timeline


def messages(job: Imagination, setup: Setup) -> int:
    """Count what a rank sends in a step."""
    lines = forecast(job.options, job.dataset, setup)[0].lines
    return traffic.total(sent.by_purpose(lines).values()).messages


def repeat(timeline: Timeline, size: int, replicas: int) -> None:
    """Write down for the other replicas what the first one, of `size` ranks, did."""
    ranks = size * replicas
    timeline.facts["sent"] = timeline.facts["sent"][:size] * replicas
    sources, dests = np.nonzero(timeline.sent)
    for shift in range(size, ranks, size):
        for source, dest in zip(sources, dests, strict=True):
            timeline.sent[source + shift, (dest + shift) % ranks] = timeline.sent[source, dest]
        for rank in range(size):
            timeline.memory[rank + shift] = timeline.memory[rank]
    if len(timeline.spans) * replicas <= MOST_SPANS:
        own = list(timeline.spans)
        for shift in range(size, ranks, size):
            timeline.spans += [replace(span, rank=span.rank + shift) for span in own]
