"""Operations that rearrange: every output element is one input element, so a gradient just travels back.

A rearranged array is usually a *view* of the input's memory. Tensors are values, so sharing is safe, with one
exception: a Parameter's memory changes with every update, and a view of it would change too, past the version
check. Therefore what is taken from a Parameter is a copy. Read next: `ops_reduce.py`.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from minidist.autograd.operands import operands, unbroadcast
from minidist.autograd.parameter import Parameter
from minidist.autograd.tape import direct, record
from minidist.autograd.tensor import Array, Tensor


def reshape(x: Any, shape: int | Sequence[int]) -> Tensor:
    """Give the elements, in C order, another shape; one of its dims may be -1."""
    x = _tensor(x)
    old = x.shape
    return record(_value(x, x.data.reshape(shape)), (x, lambda g: g.reshape(old)))


def transpose(x: Any, axes: Sequence[int] | None = None) -> Tensor:
    """Permute the dims: output dim i is input dim axes[i]; without axes their order is reversed."""
    x = _tensor(x)
    back = None if axes is None else np.argsort([axis % x.ndim for axis in axes])
    return record(_value(x, x.data.transpose(axes)), (x, lambda g: g.transpose(back)))


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Exchange two dims."""
    x = _tensor(x)
    return record(_value(x, x.data.swapaxes(axis1, axis2)), (x, lambda g: g.swapaxes(axis1, axis2)))


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Tensor:
    """Repeat along dims of length 1, and along new leading dims, until the shape is this one."""
    x = _tensor(x)
    old = x.shape
    return record(np.broadcast_to(_value(x, x.data[...]), shape), (x, lambda g: unbroadcast(g, old)))


def concatenate(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """Join tensors along a dim that they have; their other dims are equal."""
    parts = operands(*tensors)
    ends = np.cumsum([x.shape[axis] for x in parts])

    def piece(start: int, stop: int) -> Any:
        return lambda g: g.swapaxes(0, axis)[start:stop].swapaxes(0, axis)

    inputs = [(x, piece(end - x.shape[axis], end)) for x, end in zip(parts, ends, strict=True)]
    return record(np.concatenate([x.data for x in parts], axis), *inputs)


def stack(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new dim."""
    parts = operands(*tensors)

    def piece(i: int) -> Any:
        return lambda g: np.moveaxis(g, axis, 0)[i]

    return record(np.stack([x.data for x in parts], axis), *((x, piece(i)) for i, x in enumerate(parts)))


def getitem(x: Any, index: Any) -> Tensor:
    """Take x[index], with any index that NumPy knows.

    An element that is taken twice gets both gradients. Backward asks which *position* each output element
    came from, by indexing an array of positions, and adds the gradients up there.
    """
    x = _tensor(x)
    shape, index = x.shape, _own(index)

    def gradient(g: Array, out: Array | None, accumulate: bool) -> Array:
        if out is None:
            out = np.zeros(shape, g.dtype)
        elif not accumulate:
            out[...] = 0
        if _is_basic(index):  # numbers and slices take nothing twice
            out[index] += g
        else:
            positions = np.arange(prod(shape)).reshape(shape)[index]
            sums = np.zeros(prod(shape), g.dtype)
            np.add.at(sums, positions.ravel(), g.ravel())  # where `+=` would count a repeated position once
            out += sums.reshape(shape)
        return out

    return record(_value(x, x.data[index]), (x, direct(gradient)))


def _tensor(x: Any) -> Tensor:
    """Return x as a Tensor; unlike `operands` this leaves integers alone, because nothing is computed."""
    return x if isinstance(x, Tensor) else Tensor(x)


def _value(x: Tensor, taken: Array) -> Array:
    """Return an array taken from x that will not change: a view of a Parameter's weights is copied."""
    return taken.copy(order="K") if isinstance(x, Parameter) and taken.base is not None else taken


def _own(index: Any) -> Any:
    """Return an index of copied arrays, because the caller may change his before backward."""
    if isinstance(index, tuple):
        return tuple(_own(part) for part in index)
    if isinstance(index, Tensor):
        return index.data
    return np.array(index) if isinstance(index, np.ndarray | list) else index


def _is_basic(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or part is Ellipsis or isinstance(part, slice) or type(part) is int for part in parts
    )
