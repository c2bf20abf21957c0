"""What of a sync belongs into a checkpoint: the vectors in which weights and optimizer state are, cut by name.

    group.weights      [ head | block.1 | block.0 ]     data parallel on 2 ranks: rank 0 saves the first half of them,
    state "momentum"   [ head | block.1 | block.0 ]     rank 1 the second, and each fills all when it loads

Read next: `minidist/checkpoint/state.py`, which says what a piece is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minidist.checkpoint import Piece, pieces_of, placement_of
from minidist.comm import Mesh
from minidist.nn.flat import Entry, Group
from minidist.optim import Optimizer
from minidist.sync.clipping import counted_here
from minidist.sync.shard import Shard


def slots_of(optimizer: Optimizer, number: int) -> dict[str, np.ndarray]:
    """Give the state vectors of the optimizer's group `number`, by slot."""
    return {slot: vectors[number] for slot, vectors in optimizer.state.items()}


def turn(mesh: Mesh, group: Group) -> Callable[[Entry], bool]:
    """Say which parameters of a group this rank saves, where replicas are equal: they share them out."""
    replicas, replica = mesh.axes.get("data", 1), mesh.coordinates.get("data", 0)
    total = max(1, sum(entry.size for entry in group.layout))
    first = counted_here(mesh, group)
    return lambda entry: first and entry.offset * replicas // total == replica


def whole_groups(
    mesh: Mesh, groups: Sequence[Group], optimizer: Optimizer | None, alike: bool = True
) -> Iterator[Piece]:
    """List the weights of all groups, and the state of those that are trained.

    alike: whether all replicas have the same; else each saves its own.
    """
    trained = 0
    for group in groups:
        vectors: Mapping[str, np.ndarray] = {"weights": group.weights}
        if group.trainable and optimizer is not None:
            vectors = {**vectors, **slots_of(optimizer, trained)}
            trained += 1
        yield from other_vectors(mesh, group, vectors, alike)


def other_vectors(
    mesh: Mesh, group: Group, vectors: Mapping[str, np.ndarray], alike: bool = True
) -> Iterator[Piece]:
    """List vectors of a group's size, by slot."""
    writes = turn(mesh, group) if alike else counted_here(mesh, group)
    yield from pieces_of(group, slice(0, group.weights.size), vectors, writes)


def shard_vectors(mesh: Mesh, shard: Shard, vectors: Mapping[str, np.ndarray]) -> Iterator[Piece]:
    """List vectors of a shard's size, by slot: what one rank alone has."""
    group = shard.bucket.group
    yield from pieces_of(group, shard.region, vectors, counted_here(mesh, group, group.axes))


def places(group: Group, part: slice) -> list[tuple[str, dict[str, Any]]]:
    """Say in plain data what one part of a group's vectors holds: for a server, which has no model."""
    pieces = pieces_of(group, part, {"weights": group.weights[part]})
    return [(piece.name, piece.place()) for piece in pieces]


def pieces_at(
    held: Iterable[tuple[str, dict[str, Any]]], vectors: Mapping[str, np.ndarray]
) -> Iterator[Piece]:
    """List the pieces of vectors that hold what `places` has said, one behind another."""
    begin = 0
    for name, place in held:
        start, stop = place["range"]
        for slot, vector in vectors.items():
            array = vector[begin : begin + stop - start]
            yield Piece(slot, name, placement_of(place), start, stop, array)
        begin += stop - start
