"""The outer step: what becomes of an average.

    replicas   start --- k steps of their own ---> average            d = start - average: a gradient of its own kind
    outer      start ------ one step along d ----> the next start

Read next: `model_averaging.py`, which calls it.
"""

import math
from collections.abc import Sequence

import numpy as np

from minidist.errors import UserError
from minidist.nn.flat import Group


class OuterNesterov:
    """Step along the averaged change of all replicas, with Nesterov's momentum (Douillard et al. 2023, section 2).

        d <- start - average,   v <- momentum * v + d,   w <- start - lr * (d + momentum * v)

    With lr=1 and momentum=0 that is w <- average.
    """

    def __init__(self, lr: float = 0.7, momentum: float = 0.9) -> None:
        if not (math.isfinite(lr) and lr > 0 and 0 <= momentum < 1):
            raise UserError(
                f"the outer step has lr {lr} and momentum {momentum}; expected lr above 0 and momentum from 0 to below "
                "1: 0.7 and 0.9 are usual"
            )
        self.lr, self.momentum = lr, momentum
        self._starts: list[np.ndarray] = []
        self._velocities: list[np.ndarray] = []

    def start(self, groups: Sequence[Group]) -> None:
        """Remember where all replicas start from together."""
        self._starts = [group.weights.copy() for group in groups]
        self._velocities = self._velocities or [np.zeros_like(group.weights) for group in groups]

    def state(self, groups: Sequence[Group]) -> list[dict[str, np.ndarray]]:
        """Give its vectors for each group, by slot."""
        if not self._starts:
            self.start(groups)  # they take memory from now on
        pairs = zip(self._starts, self._velocities, strict=True)
        return [{"outer start": start, "outer velocity": velocity} for start, velocity in pairs]

    def step(self, groups: Sequence[Group]) -> None:
        """Turn the average, which the weights hold, into the next start."""
        for group, start, velocity in zip(groups, self._starts, self._velocities, strict=True):
            change = start - group.weights
            velocity *= self.momentum
            velocity += change
            change += self.momentum * velocity
            start -= self.lr * change
            group.weights[...] = start
