"""AdamW: each weight has a step size of its own, from running means of its gradient and of its square."""

from collections.abc import Sequence

import numpy as np

from minidist import _kernels as kernels
from minidist.optim.optimizer import Optimizer, Vectors, require


class AdamW(Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1) with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2).

        m <- beta1 * m + (1 - beta1) * g              mean of gradients
        v <- beta2 * v + (1 - beta2) * g * g          mean of their squares
        w <- w - lr * weight_decay * w - lr * m^ / (sqrt(v^) + eps)

    where m^ = m / (1 - beta1^t) and v^ = v / (1 - beta2^t) correct for the start at 0 in step t = 1, 2, ...;
    eps is added *after* the correction, and the decay uses the weights from before the step.
    """

    slots = ("mean", "square")

    def __init__(
        self,
        groups: Sequence[Vectors],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        require(beta1=betas[0], beta2=betas[1], eps=eps)
        if max(betas) >= 1:
            raise ValueError(
                f"betas are {betas}; both must be below 1, or a running mean never forgets its start"
            )
        self.betas = betas
        self.eps = eps
        super().__init__(groups, lr, weight_decay)

    def rule(
        self, weights: np.ndarray, gradients: np.ndarray, state: dict[str, np.ndarray], scale: float
    ) -> float:
        """Update weights and state in place; all arrays are 1-d and of one length."""
        return kernels.adamw(
            weights,
            gradients,
            state["mean"],
            state["square"],
            self.steps,
            self.lr,
            *self.betas,
            self.eps,
            self.weight_decay,
            scale,
        )
