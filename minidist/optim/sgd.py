"""Stochastic gradient descent with momentum: the rule that hides nothing.

A gradient that is wrong by a factor makes a step that is wrong by that factor, which is why the tests that compare
many ranks with one process use this rule and not Adam. Read next: `adamw.py`.
"""

from collections.abc import Sequence

import numpy as np

from minidist import _kernels as kernels
from minidist.optim.optimizer import Optimizer, Vectors, require


class SGD(Optimizer):
    """Step along the gradient, with momentum (Polyak 1964) in the form of Sutskever et al. 2013, section 2.

        v <- momentum * v + (g + weight_decay * w)
        w <- w - lr * v

    v starts at 0. Without momentum there is no v, and no memory for it.
    """

    def __init__(
        self, groups: Sequence[Vectors], lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        require(momentum=momentum)
        self.momentum = momentum
        self.slots = ("momentum",) if momentum else ()
        super().__init__(groups, lr, weight_decay)

    def rule(
        self, weights: np.ndarray, gradients: np.ndarray, state: dict[str, np.ndarray], scale: float
    ) -> float:
        """Update weights and state in place; all arrays are 1-d and of one length."""
        return kernels.sgd(
            weights, gradients, state.get("momentum"), self.lr, self.momentum, self.weight_decay, scale
        )
