"""A case: the same steps on one rank and on many, and what it means for two tensors of it to differ.

Read next: `compare.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minidist.check.record import Call, Record


@dataclass(frozen=True)
class Case:
    """The same steps on one rank and on many; `nudged` is one rank again, changed in the last digit."""

    ranks: int
    batches: Sequence[tuple[np.ndarray, np.ndarray]]
    one: list[Record]
    nudged: list[Record]
    many: list[list[Record]]  # by step, then by rank

    @property
    def floor(self) -> float:
        """The relative difference that is never looked at."""
        single = any(array.dtype == np.float32 for array in self.one[0].start.values())
        return 3e-5 if single else 1e-9

    def differ(self, got: np.ndarray, one: np.ndarray, nudged: np.ndarray | None, least: float = 0.0) -> bool:
        """Say whether two tensors differ by more than rounding explains."""
        if not got.size:
            return False
        scale = max(float(np.abs(one).max(initial=0)), least, 1e-300)
        noise = 0.0 if nudged is None else float(np.abs(nudged - one).max(initial=0))
        with np.errstate(invalid="ignore"):
            return not float(np.abs(got - one).max()) <= max(self.floor * scale, 32 * noise)


@dataclass(frozen=True)
class Difference:
    """One tensor that differs. step counts from 0; result: whether it had to agree."""

    stage: str  # start, rows, forward, labels, stale, gradient, weights, state, buffer, value
    step: int
    rank: int
    tensor: str
    result: bool
    got: np.ndarray | None = None
    one: np.ndarray | None = None
    call: Call | None = None


def part_of(whole: np.ndarray, name: str, records: Sequence[Record], rank: int) -> np.ndarray | None:
    """Cut what a rank holds out of one process's tensor; None where that is not known."""
    placement = records[rank].placements.get(name)
    shapes = [record.end[name].shape if name in record.end else None for record in records]
    here = shapes[rank]
    if placement is not None and placement.shape == whole.shape:
        return placement.take(whole)
    if here is None or here == whole.shape:
        return whole
    cut = [dim for dim in range(whole.ndim) if len(here) == whole.ndim and here[dim] != whole.shape[dim]]
    sizes = [shape[cut[0]] if shape and cut else 0 for shape in shapes]
    if len(cut) != 1 or sum(sizes) != whole.shape[cut[0]]:
        return None
    first = sum(sizes[:rank])  # pieces follow each other in rank order
    return np.take(whole, np.arange(first, first + sizes[rank]), axis=cut[0])


def rows_of(record: Record) -> np.ndarray:
    """Give the rows that a rank read, each once."""
    return np.unique(np.concatenate([*record.reads, np.empty(0, np.int64)])).astype(np.int64)


def gradient_of(record: Record, name: str) -> np.ndarray | None:
    """Give the gradient that a rank applied; where it applied none, the one that it was left with."""
    return record.applied[name] if name in record.applied else record.left.get(name)
