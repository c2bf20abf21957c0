"""What a rank holds in memory, from sizes alone: weights, gradients, optimizer state, and what a mode adds to them.

    rank 1 of data=2,pipe=2          always: weights, gradients, optimizer state         at most, besides: stage inputs
    a worker beside servers          weights and gradients; the state is with the servers
    server 0 of 2                    half of every bucket: weights, state, and a gradient of each worker

In a step further memory comes and goes: what a layer keeps for its backward depends on the kernels and is not foretold
here, except for what enters the stages of a pipeline (with recomputation that is all that waits). Neither are the
copies that messages need on their way, nor the data, nor Python itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minidist.nn import Group
from minidist.nn.flat import cut_into_buckets
from minidist.plan import zero
from minidist.plan.zero import Shared


@dataclass(frozen=True)
class Held:
    """Some bytes that a rank holds: from the first step to the last, or for a while in each and at most so many."""

    what: str
    nbytes: int
    always: bool = True


def vectors(groups: Sequence[Group], slots: int) -> list[Held]:
    """Say what a rank holds that updates all it has; slots: vectors of optimizer state, 0 where servers have it."""
    trained = sum(group.weights.nbytes for group in groups if group.trainable)
    return [
        Held("weights", sum(group.weights.nbytes for group in groups)),
        Held("gradients", trained),
        *([Held("optimizer state", slots * trained)] if slots else []),
    ]


def shards(groups: Sequence[Group], buckets: Sequence[Shared], stage: int, slots: int) -> list[Held]:
    """Say what a rank holds under ZeRO."""
    held = zero.memory(buckets, stage, slots)
    frozen = sum(group.weights.nbytes for group in groups if not group.trainable)
    found = [
        Held("weights", held["weights"] + frozen),
        Held("gradients", held["gradients"], always=stage == 1),
        *([Held("optimizer state", held["state"])] if slots else []),
    ]
    passing = ("gradients being written", "weights being read")
    return found + [Held(what, held[what], always=False) for what in passing if held[what]]


def outer(groups: Sequence[Group]) -> list[Held]:
    """Say what DiLoCo's outer step adds: where all replicas started, and a velocity."""
    trained = sum(group.weights.nbytes for group in groups if group.trainable)
    return [Held("outer step: start and velocity", 2 * trained)]


def stashed(groups: Sequence[Group], versions: int) -> list[Held]:
    """Say what PipeDream adds: older versions of the weights, as long as a microbatch needs them."""
    trained = sum(group.weights.nbytes for group in groups if group.trainable)
    return [Held("older weights", versions * trained, always=False)]


def stage_inputs(alive: int, nbytes: int) -> list[Held]:
    """Say what waits of a pipeline's microbatches: `alive` inputs of at most so many bytes each."""
    return [Held(f"inputs of stages, {alive} alive", alive * nbytes, always=False)]


def server(shards: Sequence[int], received: Sequence[int], slots: int) -> list[Held]:
    """Say what a server holds: the bytes of its shards, and of the gradients that it makes room for."""
    own = sum(shards)
    return [
        Held("weights", own),
        Held("gradients that come", sum(received)),
        *([Held("optimizer state", slots * own)] if slots else []),
        Held("weights on their way", own, always=False),
    ]


def stages(groups: Sequence[Group], ranks: int, slots: int, bytes_per_bucket: int) -> dict[str, list[Held]]:
    """Say what the first rank holds in data parallel and in ZeRO's stages: {"stage 0": ..., ..., "stage 3": ...}.

    groups: of a model that may be declared only (`flatten(model, filled=False)`).
    """
    cut = [
        Shared(bucket.size, bucket.group.dtype.itemsize, 0, ranks)
        for bucket in cut_into_buckets(groups, bytes_per_bucket)
    ]
    sharded = {f"stage {stage}": shards(groups, cut, stage, slots) for stage in (1, 2, 3)}
    return {"stage 0": vectors(groups, slots), **sharded}
