"""Operations that rearrange: every output element is one input element, so a gradient travels the way back.

A rearranged array is usually a *view* of the input's memory. Tensors are values, so sharing is safe, with one
exception: a Parameter's memory changes with every update, and a view of it would change too, past the version check.
Therefore what is rearranged of a Parameter is a copy. Read next: `ops_reduce.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minidist.autograd.ops_elementwise import operand, unbroadcast
from minidist.autograd.tape import record
from minidist.autograd.tensor import Array, Parameter, Tensor


def _seen(x: Tensor, view: Array) -> Array:
    """Return a view of x.data that is safe to keep."""
    return view.copy(order="K") if isinstance(x, Parameter) else view


def reshape(x: Any, shape: int | Sequence[int]) -> Tensor:
    """Give the elements, in C order, another shape; one of its dims may be -1."""
    x = operand(x)
    old = x.shape
    return record(_seen(x, x.data.reshape(shape)), (x, lambda g: g.reshape(old)))


def transpose(x: Any, axes: Sequence[int] | None = None) -> Tensor:
    """Permute the dims: output dim i is input dim axes[i]; without axes their order is reversed."""
    x = operand(x)
    back = None if axes is None else np.argsort([axis % x.ndim for axis in axes])
    return record(_seen(x, x.data.transpose(axes)), (x, lambda g: g.transpose(back)))


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Exchange two dims."""
    x = operand(x)
    return record(_seen(x, x.data.swapaxes(axis1, axis2)), (x, lambda g: g.swapaxes(axis1, axis2)))


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Tensor:
    """Repeat along dims of length 1 and along new leading dims until the shape is this one."""
    x = operand(x)
    old = x.shape
    return record(np.broadcast_to(_seen(x, x.data), shape), (x, lambda g: unbroadcast(g, old)))


def concatenate(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """Join tensors along a dim that they have; the other dims are equal."""
    parts = [operand(x) for x in tensors]
    data = np.concatenate([x.data for x in parts], axis)
    edges = np.cumsum([0] + [x.shape[axis] for x in parts])

    def take(start: int, stop: int) -> Any:
        return lambda g: g.swapaxes(0, axis)[start:stop].swapaxes(0, axis)

    return record(data, *((x, take(edges[i], edges[i + 1])) for i, x in enumerate(parts)))


def stack(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new dim."""
    parts = [operand(x) for x in tensors]

    def take(i: int) -> Any:
        return lambda g: np.moveaxis(g, axis, 0)[i]

    return record(np.stack([x.data for x in parts], axis), *((x, take(i)) for i, x in enumerate(parts)))


def getitem(x: Any, index: Any) -> Tensor:
    """Take x[index] with any index that NumPy knows.

    An element that was taken twice gets both gradients: backward asks for the *position* that each output element
    came from, by indexing an array of positions, and counts them up with the gradient as weight.
    """
    x = operand(x)
    shape, dtype = x.shape, x.dtype
    index = _plain(index)

    def gradient(g: Array) -> Array:
        if _is_basic(index):  # numbers and slices take nothing twice
            result = np.zeros(shape, dtype)
            result[index] = g
            return result
        size = int(np.prod(shape))
        positions = np.arange(size).reshape(shape)[index]
        return np.bincount(positions.ravel(), g.ravel(), size).astype(dtype).reshape(shape)

    return record(_seen(x, x.data[index]), (x, gradient))


def _plain(index: Any) -> Any:
    """Return an index in which Tensors are arrays; arrays are copied, because the caller may change them."""
    if isinstance(index, tuple):
        return tuple(_plain(part) for part in index)
    if isinstance(index, Tensor):
        return index.data
    return np.array(index) if isinstance(index, np.ndarray | list) else index


def _is_basic(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        isinstance(part, slice | int | np.integer)
        and not isinstance(part, bool)
        or part is None
        or part is Ellipsis
        for part in parts
    )
