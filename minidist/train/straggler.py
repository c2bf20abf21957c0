"""A straggler: a rank that computes clearly longer than those that have as much to do, so that all wait for it.

    fastest of 10 or more steps      rank 0   rank 1   rank 2   rank 3
    first stretch                    5.1 ms      5.0     11.2      5.3
    second                           5.2         5.1     11.0      5.1
    third                            5.0         5.0     11.4      5.2       "rank 2 is a straggler"

The fastest step is compared, not the mean: where more ranks than cores take turns, most steps of any rank are slow now
and then, but hardly ever all of one rank's and none of another's. (On two cores with 40 other processes, the median
steps of 4 equal ranks were up to 10 times apart, the fastest of 20 up to 1.2.) So what is found is slow in every step.

Ranks of different stages of a pipeline have different work, so each is compared with its own stage's others.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

FACTOR = 1.5  # times as long as the others' median
STEPS, SECONDS = 10, 0.5  # of a stretch, at least
STRETCHES = 3  # so many in a row, with the same rank


class Stragglers:
    """Look at one stretch of steps after another; speak once. alike: ranks of the same number have equal work."""

    def __init__(self, alike: Sequence[int]) -> None:
        self.alike = alike
        self.spoken = False
        self.slow: list[int] = []  # the slowest rank of each of the last stretches, -1 where none is
        self._begin()

    def _begin(self) -> None:
        self.fastest, self.steps, self.seconds = np.full(len(self.alike), np.inf), 0, 0.0

    def look(self, fastest: np.ndarray, steps: int, seconds: float) -> str | None:
        """Take each rank's fastest step, (ranks,), of so many that took so many seconds; give a warning or None."""
        self.fastest = np.minimum(self.fastest, fastest)
        self.steps += steps
        self.seconds += seconds
        if self.spoken or self.steps < STEPS or self.seconds < SECONDS:
            return None
        found, (rank, factor, others) = self.fastest, slowest(self.fastest, self.alike)
        self.slow = [*self.slow[1 - STRETCHES :], rank if factor >= FACTOR else -1]
        self._begin()
        if rank < 0 or self.slow != [rank] * STRETCHES:
            return None
        self.spoken = True
        return (
            f"warning: rank {rank} is a straggler: its fastest steps compute {factor:.1f} times as long as those of "
            f"others with equal work ({1e3 * found[rank]:.3g} ms, they {1e3 * others:.3g}), and all wait for it; look "
            "at what else runs on its core (top), how its machine is cooled, and what this rank alone does"
        )


def slowest(step: np.ndarray, alike: Sequence[int]) -> tuple[int, float, float]:
    """Give the rank that is slowest beside its equals, how many times their median it takes, and that median."""
    found = (-1, 0.0, 0.0)
    for rank, number in enumerate(alike):
        others = [step[other] for other, one in enumerate(alike) if one == number and other != rank]
        if others and (middle := float(median(others))) > 0 and step[rank] / middle > found[1]:
            found = rank, float(step[rank]) / middle, middle
    return found
