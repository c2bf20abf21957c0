"""Which part of a parameter is here, where a model is spread over ranks.

    one process       weight (4, 6)            column-parallel on 2 ranks       Placement((4, 6), dim=1, indices)
                      a b c | d e f            rank 0: a b c    (4, 3)          indices [0 1 2]
                                               rank 1: d e f    (4, 3)          indices [3 4 5]

A parameter is cut along one dim at most. The indices need not be neighbours: a matrix that makes queries, keys and
values is cut within each of the three. A parameter without a placement is whole, and no other rank of its replica
has it.

Read next: `flat.py`, whose layout table keeps placements, and `minidist/split/tensor_parallel.py`, which makes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np


@dataclass(frozen=True, eq=False)
class Placement:
    """Say what this rank's array is of the parameter that one process would have.

    shape: of the whole parameter.
    dim, indices: along which dim it is cut, and which indices of that dim are here; None: all of it.
    repeated: the mesh axes along which other ranks hold the same copy of it.
    partial: the mesh axes over which its gradient is still a partial sum when backward ends ("data" goes without
        saying).
    """

    shape: tuple[int, ...]
    dim: int | None = None
    indices: np.ndarray | None = None
    repeated: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()

    @property
    def here(self) -> tuple[int, ...]:
        """The shape of what is here."""
        if self.dim is None or self.indices is None:
            return self.shape
        return (*self.shape[: self.dim], len(self.indices), *self.shape[self.dim + 1 :])

    def take(self, whole: np.ndarray) -> np.ndarray:
        """Cut this rank's part out of the whole parameter."""
        return whole if self.dim is None else np.take(whole, self.indices, axis=self.dim)  # type: ignore[arg-type]

    def put(self, part: np.ndarray, whole: np.ndarray) -> None:
        """Write this rank's part into the whole parameter."""
        where = (slice(None),) * (self.dim or 0)
        whole[... if self.dim is None else (*where, self.indices)] = part

    def stretches(self) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of the elements that are here, counted in the whole parameter, in order."""
        if self.dim is None or self.indices is None:
            yield 0, int(np.prod(self.shape))
            return
        inner = int(np.prod(self.shape[self.dim + 1 :]))  # elements that lie together
        cuts = [0, *(np.flatnonzero(np.diff(self.indices) != 1) + 1), len(self.indices)]
        runs = [(int(self.indices[a]), b - a) for a, b in pairwise(cuts) if b > a]  # (first index, how many)
        for outer, (first, count) in product(range(int(np.prod(self.shape[: self.dim]))), runs):
            start = (outer * self.shape[self.dim] + first) * inner
            yield start, start + count * inner

    def also(self, repeated: tuple[str, ...] = (), partial: tuple[str, ...] = ()) -> "Placement":
        """The same with further axes: for a model that is split in two ways."""
        return replace(self, repeated=self.repeated + repeated, partial=self.partial + partial)


def shares(n: int, ranks: int) -> list[np.ndarray]:
    """Share out n indices in order, as equally as can be: the first ranks get one more."""
    return np.array_split(np.arange(n), ranks)
