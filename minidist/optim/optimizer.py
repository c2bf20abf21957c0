"""What an update rule is: state vectors beside the weights, and one kernel call per group and step.

    weights     [ head | block.1 | block.0 | embed ]
    gradients   [ head | block.1 | block.0 | embed ]      all of one length, so the rule is one loop over all,
    momentum    [ head | block.1 | block.0 | embed ]      whatever the model looks like

A rule does not know whether it is given the whole vector, a bucket of it or the shard that one rank owns. The
kernel that makes the pass is in `minidist/_kernels/`; who calls `step` and when is up to `minidist/sync/`.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np


class Vectors(Protocol):
    """What an optimizer updates: a `nn.Group`, or anything else that has two vectors of one length."""

    weights: np.ndarray
    gradients: np.ndarray | None
    trainable: bool

    def updated(self) -> None:
        """Hear that the weights have changed."""


class Optimizer:
    """Update the weights of all trainable groups from their gradients.

    A subclass names its state vectors in `slots`, and says in `rule` what happens to one stretch of the vectors.
    """

    slots: tuple[str, ...] = ()

    def __init__(self, groups: Sequence[Vectors], lr: float, weight_decay: float) -> None:
        require(lr=lr, weight_decay=weight_decay)
        self.groups = [group for group in groups if group.trainable]
        self.lr = lr
        self.weight_decay = weight_decay
        self.steps = 0
        self._state: dict[str, list[np.ndarray]] | None = None

    @property
    def state(self) -> dict[str, list[np.ndarray]]:
        """Zeros at first, one vector for each slot and group; they take memory from the first update on."""
        if self._state is None:
            self._state = {slot: [np.zeros_like(g.weights) for g in self.groups] for slot in self.slots}
        return self._state

    def over(self, groups: Sequence[Vectors]) -> "Optimizer":
        """Make the same rule for other vectors, from the start: for the shards that one rank or server owns."""
        other = copy.copy(self)
        other.groups = [group for group in groups if group.trainable]
        other.steps, other._state = 0, None
        return other

    def step(self, scale: float = 1.0, parts: Iterable[tuple[int, slice]] | None = None) -> list[float]:
        """Apply one update to everything; every gradient is multiplied by `scale` first (clipping).

        parts: (group number, region) one after another, together everything: each is updated when it comes, so that
            an iterator that waits for gradients lets the update of some run while others are on their way.
        Returns, for each trainable group, the sum of squares of its gradients before that.
        """
        self.steps += 1
        squares = [0.0 for _ in self.groups]
        for index, region in parts or ((index, slice(None)) for index in range(len(self.groups))):
            squares[index] += self.update(index, region, scale)
        for group in self.groups:
            group.updated()
        return squares

    def update(self, index: int, region: slice, scale: float) -> float:
        """Apply the rule, in place, to one region of the vectors of group number `index`; return what it returns."""
        group = self.groups[index]
        assert group.gradients is not None, "frozen groups were left out"
        state = {slot: vectors[index][region] for slot, vectors in self.state.items()}
        return self.rule(group.weights[region], group.gradients[region], state, scale)

    def rule(
        self, weights: np.ndarray, gradients: np.ndarray, state: dict[str, np.ndarray], scale: float
    ) -> float:
        """Update weights and state in place; all arrays are 1-d and of one length.

        Returns the sum of squares of the gradients, which the pass reads anyway.
        """
        raise TypeError(f"{type(self).__name__} does not say how to update: define rule(...)")


def require(**values: float) -> None:
    """Refuse hyperparameters that are negative, infinite or not a number, by name."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}; it must be a finite number, 0 or larger")
