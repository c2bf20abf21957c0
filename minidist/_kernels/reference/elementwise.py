"""Functions of single numbers; the fast ones: `../elementwise.h`."""

import math
from typing import Any

import numpy as np

from minidist._kernels import checks

GELU_SLOPE = math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715
GELU_SATURATES = 40.0  # from here on gelu(x) is x, and 0 below -40, to the last bit of float64


def _gelu_gate(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x kept in the range where gelu is curved, and (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)) there."""
    curved = np.clip(x, -GELU_SATURATES, GELU_SATURATES)
    u = GELU_SLOPE * (curved + GELU_CUBIC * curved * curved * curved)
    with np.errstate(over="ignore"):
        return curved, 1 / (1 + np.exp(-2 * u))


def gelu(x: Any) -> np.ndarray:
    """Apply GELU in the tanh form of GPT-2: x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2.

    Hendrycks and Gimpel 2016, section 2. (1 + tanh(u)) / 2 is computed as 1 / (1 + exp(-2u)), which does not cancel.
    """
    (x,) = checks.floats("gelu", x=x)
    curved, gate = _gelu_gate(x)
    return np.asarray(np.where(x > 0, x, curved) * gate)


def gelu_backward(grad: Any, x: Any) -> np.ndarray:
    """Turn the gradient of gelu(x) into that of x."""
    grad, x = checks.floats("gelu_backward", grad=grad, x=x)
    checks.shape("gelu_backward", "grad", grad, x.shape, "the shape of x")
    curved, gate = _gelu_gate(x)
    slope = 2 * GELU_SLOPE * (1 + 3 * GELU_CUBIC * np.square(curved))
    return np.asarray(grad * (gate + curved * slope * gate * (1 - gate)))


def relu(x: Any) -> np.ndarray:
    """Compute max(x, 0); nan stays nan."""
    (x,) = checks.floats("relu", x=x)
    return np.asarray(np.maximum(x, 0))


def relu_backward(grad: Any, y: Any) -> np.ndarray:
    """Pass the gradient on where y = relu(x) is positive, and 0 elsewhere."""
    grad, y = checks.floats("relu_backward", grad=grad, y=y)
    checks.shape("relu_backward", "grad", grad, y.shape, "the shape of y")
    return np.where(y > 0, grad, np.zeros((), grad.dtype))
