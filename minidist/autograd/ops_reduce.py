"""Operations that make one element of many, and those built on them.

A gradient is spread over the elements it came from: to all alike for a sum, to the largest for a max. `axis`
is None (all), a number or a tuple. The gradient gets its reduced dims back first, with length 1, so that it
broadcasts. Read next: `ops_linear.py`.
"""

from math import prod
from typing import Any

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd.operands import operands
from minidist.autograd.ops_elementwise import negative
from minidist.autograd.tape import keep, record
from minidist.autograd.tensor import Array, Axes, Tensor


def sum(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Add up the elements along the axes; the sum of nothing is 0."""
    (x,) = operands(x)
    shape, kept = x.shape, _kept_shape(x.shape, axis)
    y = kernels.sum(x.data, axis, keepdims)
    return record(y, (x, lambda g: np.broadcast_to(g.reshape(kept), shape)))


def mean(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Average the elements along the axes; ValueError if there are none."""
    (x,) = operands(x)
    shape, kept = x.shape, _kept_shape(x.shape, axis)
    count = prod(n for n, left in zip(shape, kept, strict=True) if n != left)  # elements for each mean
    if count == 0:
        raise ValueError(f"a mean needs at least one element, got shape {shape} and axis {axis}")
    return record(
        kernels.sum(x.data, axis, keepdims) / count,
        (x, lambda g: np.broadcast_to((g / count).reshape(kept), shape)),
    )


def max(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Take the largest element along the axes; equal ones share the gradient evenly."""
    (x,) = operands(x)
    kept, x_saved = _kept_shape(x.shape, axis), keep(x)
    y = kernels.max(x.data, axis, keepdims)

    def gradient(g: Array) -> Array:
        largest = np.asarray(x_saved() == y.reshape(kept), g.dtype)
        return largest * (g.reshape(kept) / kernels.sum(largest, axis, keepdims=True))

    return record(y, (x, gradient))


def min(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Take the smallest element along the axes; equal ones share the gradient evenly."""
    return negative(max(negative(x), axis, keepdims))


def norm(x: Any, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Compute the Euclidean length sqrt(sum(x * x)) along the axes; its gradient at 0 is 0."""
    (x,) = operands(x)
    data = x.data
    kept = _kept_shape(data.shape, axis)
    largest = np.max(np.abs(data), axis, keepdims=True, initial=0)  # without it, squares overflow or vanish
    small = np.divide(data, largest, out=np.zeros_like(data), where=largest != 0)
    y = largest * np.sqrt(kernels.sum(np.square(small, out=small), axis, keepdims=True))
    direction = np.divide(data, y, out=np.zeros_like(data), where=y != 0)
    return record(y if keepdims else y.squeeze(axis), (x, lambda g: g.reshape(kept) * direction))


def log_sum_exp(x: Any, axis: int = -1, keepdims: bool = False) -> Tensor:
    """Compute log(sum(exp(x))) along one axis, without overflow; the gradient is softmax(x)."""
    (x,) = operands(x)
    kept, x_saved = _kept_shape(x.shape, axis), keep(x)
    y = kernels.log_sum_exp(x.data, axis, keepdims)
    return record(y, (x, lambda g: g.reshape(kept) * np.exp(x_saved() - y.reshape(kept))))


def softmax(x: Any, axis: int = -1) -> Tensor:
    """Compute exp(x) / sum(exp(x)) along one axis."""
    (x,) = operands(x)
    y = kernels.softmax(x.data.swapaxes(axis, -1))  # the kernel works along the last dim

    def gradient(g: Array) -> Array:
        return kernels.softmax_backward(g.swapaxes(axis, -1), y).swapaxes(axis, -1)

    return record(y.swapaxes(axis, -1), (x, gradient))


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    """Compute x - log(sum(exp(x))) along one axis: the logarithms of the probabilities."""
    (x,) = operands(x)
    y = x.data - x.data.max(axis, keepdims=True, initial=-np.inf)
    y -= kernels.log_sum_exp(y, axis, keepdims=True)  # of x itself it would be rounded away beside 1e8
    return record(y, (x, lambda g: g - np.exp(y) * kernels.sum(g, axis, keepdims=True)))


def _kept_shape(shape: tuple[int, ...], axis: Axes) -> tuple[int, ...]:
    """Return the shape after a reduction with keepdims: the reduced dims have length 1."""
    if axis is None:
        return (1,) * len(shape)
    kept = list(shape)
    for one in axis if isinstance(axis, tuple) else (axis,):
        kept[one] = 1
    return tuple(kept)
