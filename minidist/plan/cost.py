"""Closed formulas for time: what a collective takes where nothing else is sent, and how long a pipeline runs.

With p ranks, n bytes in a vector, a latency a (seconds) and a bandwidth B (bytes a second):

    naive                2 (a + (p-1) n/B)                the root's port takes one after another
    tree                 2 ceil(log2 p) (a + n/B)
    recursive doubling   log2 p (a + n/B)                 p a power of 2; else two steps more
    ring                 2 (p-1) a k + 2 (p-1)/p n/B      in k blocks
    shared memory        2 a + 2 (p-1)/p n/B
    two levels           the trees within machines, and the way of the machines' first ranks between them
    reduce-scatter, all-gather (ring)    (p-1) (a + n/(pB))          barrier   ceil(log2 p) a

They say what the simulator finds for all ranks coming at once, to rounding (trees and recursive doubling: for p a
power of 2, else it may find less, as some messages overlap). Adding up is taken to cost nothing. Thakur, Rabenseifner &
Gropp, IJHPCA 2005, sections 3 and 4; a + n/B is Hockney's model of a link (1994).

A pipeline of S stages and M microbatches takes (M + S - 1) (F + B) by GPipe and by 1F1B, forward F and backward B each;
a rank is idle (S - 1) (F + B) of it. Huang et al. 2019, section 2.3; Narayanan et al., SC'21, section 2.2.

On a cluster all ranks of a machine share its cards. `seconds` takes that into account for groups that do the same at
the same time, as all replicas of a training do; it serves where there are too many ranks to play each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

from minidist.comm.all_reduce import choose, ring_blocks
from minidist.comm.two_level import first_ranks
from minidist.plan.acts import Collect
from minidist.plan.cluster import Cluster, Link
from minidist.plan.messages import algorithm_of


def all_reduce(n: int, itemsize: int, size: int, link: Link, algorithm: str) -> float:
    """Seconds of an all-reduce of n numbers over `size` ranks, each pair of them joined by such a link."""
    if size == 1:
        return 0.0
    step = link.latency + n * itemsize / link.bandwidth  # the whole vector
    most = 2 * (size - 1) / size * n * itemsize / link.bandwidth
    if algorithm == "naive":
        return 2 * (link.latency + (size - 1) * (step - link.latency))
    if algorithm == "tree":
        return 2 * ceil(log2(size)) * step
    if algorithm == "recursive_doubling":
        power = 1 << (size.bit_length() - 1)
        return (log2(power) + 2 * (power < size)) * step
    if algorithm == "ring":
        return 2 * (size - 1) * len(ring_blocks(n, itemsize, size)) * link.latency + most
    if algorithm == "shared":
        return 2 * link.latency + most
    raise ValueError(f"nobody knows how long {algorithm!r} takes")


def other(operation: str, nbytes: int, size: int, link: Link) -> float:
    """Seconds of a reduce_scatter, all_gather (nbytes: of the whole), broadcast, tell or barrier."""
    if operation == "barrier":
        return ceil(log2(size)) * link.latency
    if operation == "tell":  # every rank sends the same to each other one
        return link.latency + (size - 1) * nbytes / link.bandwidth
    if operation == "broadcast":
        return ceil(log2(size)) * (link.latency + nbytes / link.bandwidth)
    return (size - 1) * (link.latency + nbytes / size / link.bandwidth)


def pipeline(stages: int, microbatches: int, forward: float, backward: float) -> float:
    """Seconds of a step by GPipe or 1F1B where messages take no time."""
    return (microbatches + stages - 1) * (forward + backward)


def seconds(act: Collect, cluster: Cluster, nodes: Sequence[int]) -> float:
    """Seconds of a collective on a cluster, while groups like this one do the same on all ranks of its machines.

    nodes: of each member, as `Cluster.places` gives them.
    """
    size, machines = len(act.members), first_ranks(nodes)
    here = ceil(
        size / len(machines)
    )  # members on one machine, and so many neighbours of each step stay there
    if len(machines) == 1:
        return _on(act, size, cluster.within, algorithm_of(act, nodes))
    groups = max(1, cluster.devices // here)  # that share the machine's cards, each with one border in a ring
    alone, crowd = (_shared(cluster.between, users / cluster.cards) for users in (groups, cluster.devices))
    algorithm = algorithm_of(act, nodes) if act.operation == "all_reduce" else ""
    if algorithm == "two_level":
        trees = (
            2 * ceil(log2(here)) * (cluster.within.latency + act.n * act.itemsize / cluster.within.bandwidth)
        )
        between = choose(act.n * act.itemsize, len(machines))
        return trees + all_reduce(act.n, act.itemsize, len(machines), alone, between)
    if algorithm in ("recursive_doubling", "tree", "naive"):
        near = ceil(log2(here)) / ceil(log2(size))  # of the steps
        within = _on(act, size, cluster.within, algorithm)
        return near * within + (1 - near) * _on(act, size, crowd, algorithm)
    return _on(act, size, alone, algorithm)


def _shared(link: Link, users: float) -> Link:
    return Link(link.latency, link.bandwidth / max(1.0, users))


def _on(act: Collect, size: int, link: Link, algorithm: str) -> float:
    if act.operation == "all_reduce":
        return all_reduce(act.n, act.itemsize, size, link, algorithm)
    return other(act.operation, act.n * act.itemsize, size, link)
