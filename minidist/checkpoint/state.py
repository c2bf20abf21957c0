"""What is in a checkpoint: numbers by the name of the parameter that they belong to, wherever they live.

    whole parameter     a b c d e f g h i j k l            "layers.0.weight", shape (3, 4)
    rank 0 has          a b . . e f . . i j . .            its Placement: columns 0 and 1
    its shard of that   . . . . . f . . i . . .            elements 3 to 5 of those six: start=3, stop=5

A *piece* says which elements of which parameter some memory holds, in these two steps. The same list of pieces serves
to save (read the memory) and to load (fill it). Since it speaks of whole parameters, and not of ranks, it does not
matter how many ranks there were when something was saved. Beside the weights, "momentum" and the like are kept in the
same way: they are of the parameters' shapes. Each is called a *slot*.
Read next: `directory.py`, which saves; `loading.py`, which loads.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidist.nn.flat import Entry, Group
from minidist.nn.placement import Placement


@dataclass(frozen=True, eq=False)
class Piece:
    """Elements start to stop, counted in what a rank holds of a parameter, are in `array`, of shape (stop - start,).

    writes: whether this rank saves them; of several ranks that have the same elements, one does.
    """

    slot: str  # "weights", "momentum", ...
    name: str  # of the parameter
    placement: Placement
    start: int
    stop: int
    array: np.ndarray
    writes: bool = True

    @property
    def key(self) -> tuple[str, str]:
        return self.slot, self.name

    def place(self) -> dict[str, Any]:
        """Say in plain data which elements they are."""
        spread = self.placement
        return {
            "shape": list(spread.shape),
            "dim": spread.dim,
            "indices": None if spread.indices is None else as_runs(spread.indices),
            "range": [self.start, self.stop],
        }


@dataclass
class State:
    """What a rank has to save, or wants to be filled.

    numbers: by name, whatever else the next step depends on.
    replica, replicas: which one of how many this is part of, where each has a state of its own; else 0 of 1.
    """

    pieces: list[Piece]
    numbers: Mapping[str, float] = field(default_factory=dict)
    replica: int = 0
    replicas: int = 1


def pieces_of(
    group: Group,
    region: slice,
    vectors: Mapping[str, np.ndarray],
    writes: bool | Callable[[Entry], bool] = True,
) -> Iterator[Piece]:
    """List the pieces of one region of a group's vectors.

    vectors: by slot, memory of the region's size. writes: whether this rank saves them, or which parameters of them.
    """
    for entry in group.layout:
        start, stop = max(region.start, entry.offset), min(region.stop, entry.offset + entry.size)
        if start < stop or (not entry.size and region.start <= entry.offset <= region.stop):
            spread = entry.placement or Placement(entry.shape)
            inside = slice(start - entry.offset, stop - entry.offset)
            for slot, vector in vectors.items():
                array = vector[start - region.start : stop - region.start]
                yield Piece(
                    slot,
                    entry.name,
                    spread,
                    inside.start,
                    inside.stop,
                    array,
                    writes if isinstance(writes, bool) else writes(entry),
                )


def elements(place: Mapping[str, Any]) -> slice | np.ndarray:
    """Say where a piece's elements are in the whole parameter, flattened."""
    start, stop = place["range"]
    if place["dim"] is None:
        return slice(start, stop)
    numbers = np.arange(math.prod(place["shape"])).reshape(place["shape"])
    return placement_of(place).take(numbers).reshape(-1)[start:stop]


def placement_of(place: Mapping[str, Any]) -> Placement:
    """Read which part of a parameter a rank holds from plain data."""
    indices = None if place["indices"] is None else from_runs(place["indices"])
    return Placement(tuple(place["shape"]), place["dim"], indices)


def as_runs(indices: np.ndarray) -> list[list[int]]:
    """Write 3 4 5 9 as [[3, 6], [9, 10]]."""
    cuts = np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1)
    return [[int(run[0]), int(run[-1]) + 1] for run in cuts if run.size]


def from_runs(runs: list[list[int]]) -> np.ndarray:
    """Undo `as_runs`."""
    return np.concatenate([np.arange(*run) for run in runs] or [np.empty(0, np.int64)])
