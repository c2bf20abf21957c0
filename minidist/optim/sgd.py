"""Stochastic gradient descent with momentum: the rule that hides nothing.

A gradient that is wrong by a factor makes a step that is wrong by that factor, which is why the tests that compare
many ranks with one process use this rule and not Adam. Read next: `adamw.py`.
"""

from collections.abc import Sequence

from minidist import _kernels as kernels
from minidist.nn.flat import Group
from minidist.optim.optimizer import Optimizer, require


class SGD(Optimizer):
    """Step along the gradient, with momentum (Polyak 1964) in the form of Sutskever et al. 2013, section 2.

        v <- momentum * v + (g + weight_decay * w)
        w <- w - lr * v

    v starts at 0. Without momentum there is no v, and no memory for it.
    """

    def __init__(
        self, groups: Sequence[Group], lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        require(momentum=momentum)
        self.momentum = momentum
        self.slots = ("momentum",) if momentum else ()
        super().__init__(groups, lr, weight_decay)

    def update(self, index: int, region: slice, scale: float) -> None:
        """Apply the rule, in place, to one region of the vectors of group number `index`."""
        group = self.groups[index]
        velocity = self.state["momentum"][index][region] if self.momentum else None
        kernels.sgd(
            group.weights[region],
            group.gradients[region],
            velocity,
            self.lr,
            self.momentum,
            self.weight_decay,
            scale,
        )
