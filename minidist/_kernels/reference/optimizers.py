"""Update rules on flat vectors; the fast ones: `../optimizers.h`."""

import math
from typing import Any

import numpy as np

from minidist._kernels import checks
from minidist._kernels.reference.reductions import sum_of_squares


def sgd(
    weights: Any,
    gradients: Any,
    momentum_buffer: Any,
    lr: float,
    momentum: float,
    weight_decay: float,
    scale: float,
) -> float:
    """Step down the gradient g = scale * gradients + weight_decay * weights, in place, on flat vectors.

    With a buffer: buffer = momentum * buffer + g, and the step is lr * buffer; with None it is lr * g.
    Returns the sum of squares of `gradients`, in float64: the norm that is reported costs no pass of its own.
    """
    if momentum_buffer is None:
        weights, gradients = checks.vectors("sgd", ("weights",), weights=weights, gradients=gradients)
        squares = sum_of_squares(gradients)
        weights -= lr * (scale * gradients + weight_decay * weights)
        return squares
    weights, gradients, momentum_buffer = checks.vectors(
        "sgd",
        ("weights", "momentum_buffer"),
        weights=weights,
        gradients=gradients,
        momentum_buffer=momentum_buffer,
    )
    squares = sum_of_squares(gradients)
    momentum_buffer *= momentum
    momentum_buffer += scale * gradients + weight_decay * weights
    weights -= lr * momentum_buffer
    return squares


def adamw(
    weights: Any,
    gradients: Any,
    m: Any,
    v: Any,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    scale: float,
) -> float:
    """Apply AdamW (Loshchilov and Hutter 2019, algorithm 2), in place, on flat vectors; `step` counts from 1.

    The gradient is scale * gradients. Decay is taken from the old weights, and eps is added after the bias
    correction: w -= lr * weight_decay * w + lr * (m / c1) / (sqrt(v / c2) + eps) with c = 1 - beta ** step.
    Returns the sum of squares of `gradients`, as sgd does.
    """
    weights, gradients, m, v = checks.vectors(
        "adamw", ("weights", "m", "v"), weights=weights, gradients=gradients, m=m, v=v
    )
    checks.first_step(step)
    g = scale * gradients
    m *= beta1
    m += (1 - beta1) * g
    v *= beta2
    v += (1 - beta2) * np.square(g)
    correction1, correction2 = 1 - beta1**step, 1 - beta2**step
    update = (lr / correction1) * m / (np.sqrt(v) / math.sqrt(correction2) + eps)
    weights -= lr * weight_decay * weights + update
    return sum_of_squares(gradients)
