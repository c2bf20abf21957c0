"""The norm of a whole model's gradient, and clipping by it, whatever the model is spread over.

    replica:   rank 0 [ embed | block ]      rank 1 [ block | embed ]       embed is tied: the same copy on both
    squares:          count + count                 count + -               so it is counted once

Every rank sums the squares of what it holds, except for copies that an earlier rank of the replica has too; the sum
over the replica's ranks is the square of the norm that one process would have found (Pascanu et al. 2013, algorithm 1).
Cost: one number in one all-reduce over the replica; nothing where a replica is one rank.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from minidist import _kernels as kernels
from minidist.comm import Mesh
from minidist.nn.flat import Group
from minidist.optim import Optimizer


def norm(mesh: Mesh, groups: Sequence[Group]) -> float:
    """Give the norm of the replica's gradient; the same number on each of its ranks, which all call this."""
    squares = 0.0
    for group in groups:
        if group.gradients is not None and counted_here(mesh, group):
            squares += kernels.sum_of_squares(group.gradients)
    return over_replica(mesh, squares)


def norm_of_squares(mesh: Mesh, groups: Sequence[Group], squares: Sequence[float]) -> float:
    """Give the same norm where an update has summed the squares of each trainable group (`Optimizer.step`)."""
    trainable = [group for group in groups if group.gradients is not None]
    counted = [s for group, s in zip(trainable, squares, strict=True) if counted_here(mesh, group)]
    return over_replica(mesh, sum(counted))


def over_replica(mesh: Mesh, squares: float) -> float:
    """Sum the squares that the ranks of one replica counted, and take the root."""
    replica = mesh.replica()
    if replica.size > 1:
        squares = float(replica.all_reduce(np.array(squares, np.float64), purpose="control"))
    return math.sqrt(squares)


def counted_here(mesh: Mesh, group: Group, shared_out: Sequence[str] = ()) -> bool:
    """Say whether this rank counts a group: of those that hold the same copy, the first one does.

    shared_out: axes along which ranks keep shards instead of copies (ZeRO): each counts its own.
    """
    return all(mesh.comm(axis).rank == 0 for axis in group.repeated if axis not in shared_out)


def update(
    mesh: Mesh,
    groups: Sequence[Group],
    optimizer: Optimizer,
    longest: float | None,
    arriving: Iterable[tuple[int, slice]] | None = None,
) -> float:
    """Clip the gradients and apply them; return their norm before that. All ranks of the replica call this.

    arriving: waits for gradients, and yields their places one after another (`Optimizer.step`); None: they are there.
    """
    if longest is None:  # the update reads all gradients anyway, and sums their squares on the way
        return norm_of_squares(mesh, groups, optimizer.step(parts=arriving))
    for _ in arriving or ():  # the norm has to be known before any of them is applied
        pass
    found = norm(mesh, groups)
    optimizer.step(clip_scale(found, longest))
    return found


def clip_scale(norm: float, longest: float | None) -> float:
    """Say what to multiply a gradient of this norm by, so that it is at most `longest`; None: no limit."""
    return longest / norm if longest is not None and norm > longest else 1.0
