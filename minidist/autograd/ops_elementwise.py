"""Operations on single elements. The first one shows the pattern of all, here and in the other ops_*.py files.

    forward    an expression on arrays
    gradient   beside it, one function for each input: what comes back from the output -> what goes on to the input
    keep       what a gradient function needs of the inputs; `record` puts it all on the tape

Where an operation has no derivative, a rule is chosen: abs and relu have gradient 0 at 0, equal maxima share theirs.
And where no gradient comes in, none goes out, even through an infinite slope: sqrt at 0 or 1/x at 0, masked out later
by `where`, get 0 and not 0 * inf = nan. Read next: `ops_shape.py`.
"""

from typing import Any

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd.tape import keep, record
from minidist.autograd.tensor import Array, Tensor, as_array


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
    x = operand(x)
    return record(-x.data, (x, lambda g: -g))


def power(x: Any, exponent: Any) -> Tensor:
    """Compute x ** exponent for a constant exponent; for one that needs a gradient write exp(exponent * log(x))."""
    if isinstance(exponent, Tensor):
        raise TypeError(
            "x ** exponent needs a constant exponent, a number or an array, got a Tensor; "
            "for a gradient to the exponent write (exponent * x.log()).exp()"
        )
    x, n = operands(x, exponent)
    n, shape, x_saved = n.data, x.shape, keep(x)

    def gradient(g: Array) -> Array:
        slope = np.power(x_saved(), n - 1, out=np.zeros_like(g), where=(g != 0) & (n != 0))  # x^0 is constant
        return unbroadcast(times(g, n * slope), shape)

    return record(x.data**n, (x, gradient))


def exp(x: Any) -> Tensor:
    """Compute e ** x."""
    x = operand(x)
    y = np.exp(x.data)
    return record(y, (x, lambda g: times(g, y)))


def log(x: Any) -> Tensor:
    """Compute the natural logarithm."""
    x = operand(x)
    x_saved = keep(x)
    return record(np.log(x.data), (x, lambda g: over(g, x_saved())))


def sqrt(x: Any) -> Tensor:
    """Compute the square root."""
    x = operand(x)
    y = np.sqrt(x.data)
    return record(y, (x, lambda g: over(g, y + y)))


def tanh(x: Any) -> Tensor:
    """Compute the hyperbolic tangent."""
    x = operand(x)
    y = np.tanh(x.data)
    return record(y, (x, lambda g: g * (1 - y * y)))


def sigmoid(x: Any) -> Tensor:
    """Compute 1 / (1 + exp(-x)); for negative x as exp(x) / (1 + exp(x)), so that nothing overflows."""
    x = operand(x)
    small = np.exp(-np.abs(x.data))  # in (0, 1]
    y = np.where(x.data >= 0, 1, small) / (1 + small)
    return record(y, (x, lambda g: g * y * (1 - y)))


def softplus(x: Any) -> Tensor:
    """Compute log(1 + exp(x)), a smooth relu, as max(x, 0) + log(1 + exp(-|x|)), so that nothing overflows."""
    x = operand(x)
    x_saved = keep(x)

    def gradient(g: Array) -> Array:
        small = np.exp(-np.abs(x_saved()))
        return g * np.where(x_saved() >= 0, 1, small) / (1 + small)  # g * sigmoid(x)

    return record(np.maximum(x.data, 0) + np.log1p(np.exp(-np.abs(x.data))), (x, gradient))


def absolute(x: Any) -> Tensor:
    """Compute |x|; the gradient at 0 is 0."""
    x = operand(x)
    x_saved = keep(x)
    return record(np.abs(x.data), (x, lambda g: g * np.sign(x_saved())))


def maximum(a: Any, b: Any) -> Tensor:
    """Take the larger of a and b, broadcast like NumPy; where they are equal, each gets half of the gradient."""
    a, b = operands(a, b)
    a_shape, b_shape = a.shape, b.shape
    a_saved, b_saved = keep(a), keep(b)
    return record(
        np.maximum(a.data, b.data),
        (a, lambda g: unbroadcast(g * _share(a_saved(), b_saved()), a_shape)),
        (b, lambda g: unbroadcast(g * _share(b_saved(), a_saved()), b_shape)),
    )


def minimum(a: Any, b: Any) -> Tensor:
    """Take the smaller of a and b, broadcast like NumPy; where they are equal, each gets half of the gradient."""
    a, b = operands(a, b)
    a_shape, b_shape = a.shape, b.shape
    a_saved, b_saved = keep(a), keep(b)
    return record(
        np.minimum(a.data, b.data),
        (a, lambda g: unbroadcast(g * _share(b_saved(), a_saved()), a_shape)),
        (b, lambda g: unbroadcast(g * _share(a_saved(), b_saved()), b_shape)),
    )


def _share(larger: Array, smaller: Array) -> Array:
    """Return 1 where `larger` is larger, 1/2 where both are equal, 0 elsewhere."""
    return ((larger > smaller) + (larger >= smaller)).astype(larger.dtype) / 2


def clip(x: Any, low: float, high: float) -> Tensor:
    """Limit x to [low, high]; the gradient passes where low <= x <= high."""
    x = operand(x)
    x_saved = keep(x)
    return record(
        np.clip(x.data, x.dtype.type(low), x.dtype.type(high)),
        (x, lambda g: g * ((x_saved() >= low) & (x_saved() <= high))),
    )


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """Take a where the condition holds and b elsewhere; condition is an array of bool."""
    condition = as_array(condition.data if isinstance(condition, Tensor) else condition) != 0
    a, b = operands(a, b)
    a_shape, b_shape, zero = a.shape, b.shape, a.dtype.type(0)
    return record(
        np.where(condition, a.data, b.data),
        (a, lambda g: unbroadcast(np.where(condition, g, zero), a_shape)),
        (b, lambda g: unbroadcast(np.where(condition, zero, g), b_shape)),
    )


def relu(x: Any) -> Tensor:
    """Compute max(x, 0); the gradient at 0 is 0."""
    x = operand(x)
    y = kernels.relu(x.data)
    return record(y, (x, lambda g: kernels.relu_backward(g, y)))


def gelu(x: Any) -> Tensor:
    """Compute GELU in its tanh form (Hendrycks and Gimpel 2016, section 2; the form that GPT-2 uses)."""
    x = operand(x)
    x_saved = keep(x)
    return record(kernels.gelu(x.data), (x, lambda g: kernels.gelu_backward(g, x_saved())))


# ---- what the operations share


def operand(x: Any) -> Tensor:
    """Return x as a Tensor of float32 or float64."""
    x = x if isinstance(x, Tensor) else Tensor(x)
    return x if x.dtype.kind == "f" else Tensor(x.data.astype(np.float64))


def operands(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Return both as Tensors of one dtype.

    A float Tensor decides the dtype: numbers, arrays and integer Tensors beside it take its dtype, so that nothing
    becomes float64 by accident. A float32 Tensor beside a float64 one is a mistake somewhere, and refused.
    """
    a_decides = isinstance(a, Tensor) and a.dtype.kind == "f"
    b_decides = isinstance(b, Tensor) and b.dtype.kind == "f"
    if a_decides and b_decides:
        if a.dtype != b.dtype:
            raise TypeError(
                f"got Tensors of {a.dtype} and {b.dtype}; both must have one dtype: convert one of them"
            )
        return a, b
    if a_decides:
        return a, _constant(b, a.dtype)
    if b_decides:
        return _constant(a, b.dtype), b
    return operand(a), operand(b)


def _constant(value: Any, dtype: np.dtype[Any]) -> Tensor:
    return Tensor(as_array(value.data if isinstance(value, Tensor) else value).astype(dtype, copy=False))


def unbroadcast(g: Array, shape: tuple[int, ...]) -> Array:
    """Sum a gradient over the dims along which an input of this shape was repeated."""
    if g.shape == shape:
        return g
    new = g.ndim - len(shape)
    axes = (*range(new), *(new + i for i, n in enumerate(shape) if n == 1 and g.shape[new + i] != 1))
    return kernels.sum(g, axis=axes).reshape(shape)


def times(g: Array, slope: Array) -> Array:
    """Compute g * slope, and 0 where g is 0, even if the slope is infinite."""
    return np.multiply(g, slope, out=np.zeros_like(g), where=g != 0)


def over(g: Array, x: Array) -> Array:
    """Compute g / x, and 0 where g is 0, even if x is 0."""
    return np.divide(g, x, out=np.zeros_like(g), where=g != 0)
