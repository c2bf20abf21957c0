"""Operations that reduce many elements to one, and those built on them.

A reduction's gradient is spread over the elements that it came from: to each alike for a sum, to the largest for a
max. `axis` is None (all), a number or several; the gradient first gets the reduced dims back, with length 1, so that
it broadcasts. Read next: `ops_linear.py`.
"""

from typing import Any

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd.ops_elementwise import multiply, negative, operand
from minidist.autograd.tape import keep, record
from minidist.autograd.tensor import Array, Axes, Tensor


def sum(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Add up the elements along the axes; the sum of nothing is 0."""
    x = operand(x)
    shape, kept = x.shape, _kept_shape(x.shape, axis)
    return record(kernels.sum(x.data, axis, keepdims), (x, lambda g: np.broadcast_to(g.reshape(kept), shape)))


def mean(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Average the elements along the axes."""
    total = sum(x, axis, keepdims)
    count = operand(x).size // (total.size or 1)
    if count == 0:
        raise ValueError(f"mean of no elements: shape {operand(x).shape} along axis {axis}")
    return multiply(total, 1 / count)


def max(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Take the largest element along the axes; equal ones share the gradient evenly."""
    x = operand(x)
    kept, x_saved = _kept_shape(x.shape, axis), keep(x)
    y = kernels.max(x.data, axis, keepdims)

    def gradient(g: Array) -> Array:
        largest = (x_saved() == y.reshape(kept)).astype(y.dtype)
        return largest * (g.reshape(kept) / kernels.sum(largest, axis, keepdims=True))

    return record(y, (x, gradient))


def min(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Take the smallest element along the axes; equal ones share the gradient evenly."""
    return negative(max(negative(x), axis, keepdims))


def norm(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Compute the Euclidean length sqrt(sum(x * x)) along the axes; its gradient at 0 is 0."""
    x = operand(x)
    kept = _kept_shape(x.shape, axis)
    largest = np.max(
        np.abs(x.data), axis, keepdims=True, initial=0
    )  # divided by it, no square over- or underflows
    scaled = np.divide(x.data, largest, out=np.zeros_like(x.data), where=largest != 0)
    y = (largest * np.sqrt(kernels.sum(scaled * scaled, axis, keepdims=True))).reshape(kept)
    direction = np.divide(x.data, y, out=np.zeros_like(x.data), where=y != 0)
    return record(y if keepdims else y.squeeze(axis), (x, lambda g: g.reshape(kept) * direction))


def log_sum_exp(x: Any, axis: int = -1, keepdims: bool = False) -> Tensor:
    """Compute log(sum(exp(x))) along one axis, without overflow; the gradient is softmax(x)."""
    x = operand(x)
    kept, x_saved = _kept_shape(x.shape, axis), keep(x)
    y = kernels.log_sum_exp(x.data, axis, keepdims)
    return record(y, (x, lambda g: g.reshape(kept) * np.exp(x_saved() - y.reshape(kept))))


def softmax(x: Any, axis: int = -1) -> Tensor:
    """Compute exp(x) / sum(exp(x)) along one axis."""
    x = operand(x)
    y = kernels.softmax(x.data.swapaxes(axis, -1))  # the kernel works along the last dim
    return record(
        y.swapaxes(axis, -1),
        (x, lambda g: kernels.softmax_backward(g.swapaxes(axis, -1), y).swapaxes(axis, -1)),
    )


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    """Compute x - log_sum_exp(x) along one axis: the logarithms of the probabilities."""
    x = operand(x)
    y = x.data - kernels.log_sum_exp(x.data, axis, keepdims=True)
    return record(y, (x, lambda g: g - np.exp(y) * kernels.sum(g, axis, keepdims=True)))


def _kept_shape(shape: tuple[int, ...], axis: Axes) -> tuple[int, ...]:
    """Return the shape after a reduction with keepdims: the reduced dims have length 1."""
    if axis is None:
        return (1,) * len(shape)
    kept = list(shape)
    for one in axis if isinstance(axis, tuple) else (axis,):
        kept[one] = 1
    return tuple(kept)
