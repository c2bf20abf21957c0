"""Operations on single elements. The first shows the pattern of all, here and in the other ops_*.py files.

    forward    an expression on arrays
    gradient   beside it, a function for each input: d(loss)/d(output) -> d(loss)/d(input)
    keep       what a gradient function needs of the inputs; `record` puts it all on the tape

Where an operation has no derivative, a rule is chosen: abs and relu have gradient 0 at 0, and the larger of
two equal numbers is half of each. And where no gradient comes in, none goes out, even through an infinite
slope: 1/x or sqrt(x) at 0, masked out later by `where`, give 0 and not 0 * inf = nan.
Read next: `ops_shape.py`.
"""

from typing import Any

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd.operands import operands, over, times, unbroadcast
from minidist.autograd.tape import keep, record
from minidist.autograd.tensor import Array, Tensor


def add(a: Any, b: Any) -> Tensor:
    """Compute a + b, broadcast like NumPy."""
    a, b = operands(a, b)
    a_shape, b_shape = a.shape, b.shape
    return record(
        a.data + b.data,
        (a, lambda g: unbroadcast(g, a_shape)),
        (b, lambda g: unbroadcast(g, b_shape)),
    )


def subtract(a: Any, b: Any) -> Tensor:
    """Compute a - b, broadcast like NumPy."""
    a, b = operands(a, b)
    a_shape, b_shape = a.shape, b.shape
    return record(
        a.data - b.data,
        (a, lambda g: unbroadcast(g, a_shape)),
        (b, lambda g: unbroadcast(-g, b_shape)),
    )


def multiply(a: Any, b: Any) -> Tensor:
    """Compute a * b, broadcast like NumPy."""
    a, b = operands(a, b)
    a_shape, b_shape = a.shape, b.shape
    a_saved, b_saved = keep(a), keep(b)
    return record(
        a.data * b.data,
        (a, lambda g: unbroadcast(g * b_saved(), a_shape)),
        (b, lambda g: unbroadcast(g * a_saved(), b_shape)),
    )


def divide(a: Any, b: Any) -> Tensor:
    """Compute a / b, broadcast like NumPy."""
    a, b = operands(a, b)
    a_shape, b_shape = a.shape, b.shape
    b_saved = keep(b)
    quotient = a.data / b.data
    return record(
        quotient,
        (a, lambda g: unbroadcast(over(g, b_saved()), a_shape)),
        (b, lambda g: unbroadcast(-times(over(g, b_saved()), quotient), b_shape)),
    )


def negative(x: Any) -> Tensor:
    """Compute -x."""
    (x,) = operands(x)
    return record(-x.data, (x, lambda g: -g))


def power(a: Any, b: Any) -> Tensor:
    """Compute a ** b, broadcast like NumPy; a number as exponent costs less than an array."""
    number = b if isinstance(b, int | float) else None
    a, b = operands(a, b)
    a_shape, b_shape = a.shape, b.shape
    a_saved, b_saved = keep(a), keep(b)
    y = a.data ** (b.data if number is None else number)  # for the number 2 NumPy multiplies: 10 times faster

    def to_a(g: Array) -> Array:
        n = b_saved() if number is None else number
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = n * a_saved() ** (n - 1)
        slope = np.where(n == 0, slope.dtype.type(0), slope)  # x ** 0 is constant, at 0 too
        return unbroadcast(times(g, slope), a_shape)

    def to_b(g: Array) -> Array:
        base = a_saved()
        logarithm = np.log(base, out=np.zeros_like(base), where=base != 0)  # 0 ** n is constant
        return unbroadcast(times(g, y * logarithm), b_shape)

    return record(y, (a, to_a), (b, to_b))


def exp(x: Any) -> Tensor:
    """Compute e ** x."""
    (x,) = operands(x)
    y = np.exp(x.data)
    return record(y, (x, lambda g: times(g, y)))


def log(x: Any) -> Tensor:
    """Compute the natural logarithm."""
    (x,) = operands(x)
    x_saved = keep(x)
    return record(np.log(x.data), (x, lambda g: over(g, x_saved())))


def sqrt(x: Any) -> Tensor:
    """Compute the square root."""
    (x,) = operands(x)
    y = np.sqrt(x.data)
    return record(y, (x, lambda g: over(g, y + y)))


def tanh(x: Any) -> Tensor:
    """Compute the hyperbolic tangent."""
    (x,) = operands(x)
    y = np.tanh(x.data)
    return record(y, (x, lambda g: g * (1 - y * y)))


def sigmoid(x: Any) -> Tensor:
    """Compute 1 / (1 + exp(-x)), so that nothing overflows."""
    (x,) = operands(x)
    y = _sigmoid(x.data)
    return record(y, (x, lambda g: g * y * (1 - y)))


def softplus(x: Any) -> Tensor:
    """Compute log(1 + exp(x)), a smooth relu, so that nothing overflows; its gradient is sigmoid(x)."""
    (x,) = operands(x)
    x_saved = keep(x)
    y = np.maximum(x.data, 0) + np.log1p(np.exp(-np.abs(x.data)))
    return record(y, (x, lambda g: g * _sigmoid(x_saved())))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # from 0 to 1
    return np.where(x >= 0, 1, small) / (1 + small)  # for negative x this is exp(x) / (1 + exp(x))


def absolute(x: Any) -> Tensor:
    """Compute |x|; the gradient at 0 is 0."""
    (x,) = operands(x)
    x_saved = keep(x)
    return record(np.abs(x.data), (x, lambda g: g * np.sign(x_saved())))


def maximum(a: Any, b: Any) -> Tensor:
    """Take the larger of a and b, broadcast like NumPy; equal ones share the gradient evenly."""
    a, b = operands(a, b)
    a_shape, b_shape = a.shape, b.shape
    a_saved, b_saved = keep(a), keep(b)
    return record(
        np.maximum(a.data, b.data),
        (a, lambda g: unbroadcast(g * _share(a_saved(), b_saved()), a_shape)),
        (b, lambda g: unbroadcast(g * _share(b_saved(), a_saved()), b_shape)),
    )


def minimum(a: Any, b: Any) -> Tensor:
    """Take the smaller of a and b, broadcast like NumPy; equal ones share the gradient evenly."""
    return negative(maximum(negative(a), negative(b)))


def _share(larger: Array, smaller: Array) -> Array:
    """Return 1 where `larger` is larger, 1/2 where both are equal, 0 elsewhere."""
    return np.where(larger == smaller, larger.dtype.type(0.5), larger > smaller)


def clip(x: Any, low: float, high: float) -> Tensor:
    """Limit x to [low, high]; the gradient passes where low <= x <= high."""
    (x,) = operands(x)
    x_saved = keep(x)
    y = np.clip(x.data, x.dtype.type(low), x.dtype.type(high))
    return record(y, (x, lambda g: g * (x_saved() == y)))


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """Take a where the condition (an array of bool) holds, and b elsewhere, broadcast like NumPy."""
    condition = np.array(condition.data if isinstance(condition, Tensor) else condition, bool)
    a, b = operands(a, b)
    a_shape, b_shape, zero = a.shape, b.shape, a.dtype.type(0)
    return record(
        np.where(condition, a.data, b.data),
        (a, lambda g: unbroadcast(np.where(condition, g, zero), a_shape)),
        (b, lambda g: unbroadcast(np.where(condition, zero, g), b_shape)),
    )


def relu(x: Any) -> Tensor:
    """Compute max(x, 0); the gradient at 0 is 0."""
    (x,) = operands(x)
    y = kernels.relu(x.data)
    return record(y, (x, lambda g: kernels.relu_backward(g, y)))


def gelu(x: Any) -> Tensor:
    """Compute GELU in its tanh form (Hendrycks and Gimpel 2016, section 2; GPT-2 uses this form)."""
    (x,) = operands(x)
    x_saved = keep(x)
    return record(kernels.gelu(x.data), (x, lambda g: kernels.gelu_backward(g, x_saved())))
