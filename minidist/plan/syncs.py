"""What each rank sends because replicas must agree: gradients, weights, and a few numbers of control.

    data parallel       every step: each bucket of gradients, summed
    averaging           now and then: the weights; every step only what is partial within a replica
    parameter server    every step: gradients to the servers, and weights from them

The rules are those of `minidist/sync/`. ZeRO has a file of its own: `zero.py`. Read next: `memory.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from minidist.comm import Communicator, Mesh
from minidist.comm.shared_memory import memory_for
from minidist.nn import Group
from minidist.nn.flat import Bucket
from minidist.plan import traffic
from minidist.plan.sent import Sent, all_reduced
from minidist.plan.traffic import Traffic
from minidist.sync.link import PULL, note

NOTE = note(PULL, 0).nbytes  # what a worker says to a server
ANSWER = 16  # what a server says before it sends weights: their version, and the norm


def gradients_summed(mesh: Mesh, buckets: Sequence[Bucket]) -> list[Sent]:
    """Say what data parallel sends: each bucket once, over all axes over which it is a partial sum."""
    found: dict[tuple[str, ...], list[Traffic]] = {}
    for bucket in buckets:
        comm, itemsize = mesh.comm(*bucket.group.axes), bucket.group.dtype.itemsize
        # Some groups may be in shared memory, and some not.
        shared = memory_for(comm, bucket.gradients, bucket.gradients) is not None
        one = all_reduced(comm, bucket.size, itemsize, "shared" if shared else None)
        found.setdefault(bucket.group.axes, []).append(one)
    return [
        Sent("+".join(axes), "gradient", f"{_number(len(parts), 'bucket')}, summed", traffic.total(parts))
        for axes, parts in found.items()
    ]


def groups_summed(mesh: Mesh, groups: Sequence[Group]) -> list[Sent]:
    """Say what a step of averaging's warm-up sends: all gradients of a group at once."""
    return [
        Sent("+".join(group.axes), "gradient", "gradients, summed", _group(mesh, group, group.axes))
        for group in groups
        if group.trainable
    ]


def completed(mesh: Mesh, groups: Sequence[Group]) -> list[Sent]:
    """Say what it takes to sum, within a replica, the gradients that are partial there (`sync/partial.py`)."""
    return [
        Sent("+".join(group.axes[1:]), "gradient", "partial sums", _group(mesh, group, group.axes[1:]))
        for group in groups
        if group.trainable and group.axes[1:]
    ]


def _group(mesh: Mesh, group: Group, axes: Sequence[str]) -> Traffic:
    return all_reduced(mesh.comm(*axes), group.weights.size, group.dtype.itemsize)


def averaged(mesh: Mesh, groups: Sequence[Group], vectors: int) -> list[Sent]:
    """Say what one average sends: the weights (with optimizer state: `vectors` in all), and how much each counts."""
    comm = mesh.comm("data")
    weights = [_group(mesh, group, ("data",)) * vectors for group in groups if group.trainable]
    what = "weights and optimizer state, averaged" if vectors > 1 else "weights, averaged"
    return [
        Sent("data", "weights", what, traffic.total(weights)),
        Sent("data", "control", "examples behind them", traffic.all_gather([16] * comm.size, comm.rank)),
    ]


def own_loss(mesh: Mesh) -> list[Sent]:
    """Say what it takes that all ranks of a replica which steps on its own know its loss (`train/nonfinite.py`)."""
    axes = "+".join(axis for axis in mesh.axes if axis != "data")
    return [Sent(axes, "control", "the replica's loss", all_reduced(mesh.replica(), 1, 8))]


def norm(mesh: Mesh) -> list[Sent]:
    """Say what the norm of a gradient takes that is spread over a replica."""
    axes = "+".join(axis for axis in mesh.axes if axis != "data")
    return [Sent(axes, "control", "the gradient's norm", all_reduced(mesh.replica(), 1, 8))]


def norm_of_all(mesh: Mesh) -> list[Sent]:
    """Say what the norm takes where each rank knows a piece of the sum: a number over the whole mesh."""
    return [Sent("all", "control", "the gradient's norm", all_reduced(mesh.everyone, 1, 8))]


def loss(comm: Communicator) -> list[Sent]:
    """Say what it takes to know the global batch's loss everywhere."""
    return [Sent("all", "control", "the loss", all_reduced(comm, 1, 8))]


# ---- the parameter server


def pushed(parts: Sequence[Sequence[tuple[Bucket, slice]]]) -> list[Sent]:
    """Say what a worker sends in a step, for the parts of buckets that each server has."""
    sizes = [
        (part.stop - part.start) * bucket.group.dtype.itemsize for server in parts for bucket, part in server
    ]
    gradients = Traffic(len(sizes), sum(sizes))
    return [
        Sent("servers", "gradient", f"{_number(len(sizes), 'part')}, pushed", gradients),
        Sent("servers", "control", "notes", Traffic(1, NOTE) * (len(sizes) + 2 * len(parts))),
    ]


def left(servers: int) -> list[Sent]:
    """Say what a worker sends in the end: that it leaves, and that it wants the final weights."""
    return [Sent("servers", "control", "notes", Traffic(1, NOTE) * 2 * servers)]


def handed_on(mesh: Mesh, groups: Sequence[Group]) -> list[Sent]:
    """Say what it takes to give weights to those of a replica who hold the same."""
    return [
        Sent(
            axis,
            "weights",
            "weights that several ranks hold, handed on",
            traffic.broadcast(group.weights.nbytes, mesh.comm(axis).rank, mesh.comm(axis).size),
        )
        for group in groups
        if group.trainable
        for axis in group.repeated
    ]


def answered(sizes: Sequence[Sequence[int]]) -> list[Sent]:
    """Say what a server sends when every worker pulls once: the bytes of each worker's shards."""
    shards = [nbytes for worker in sizes for nbytes in worker]
    return [
        Sent("workers", "weights", "weights, pulled", Traffic(len(shards), sum(shards))),
        Sent("workers", "control", "versions and norms", Traffic(1, ANSWER) * len(sizes)),
    ]


def servers_norm(servers: Communicator) -> list[Sent]:
    """Say what servers send each other in an update by all workers."""
    return [Sent("servers", "control", "the gradient's norm", all_reduced(servers, 1, 8))]


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
