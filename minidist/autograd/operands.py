"""What the operations have in common: inputs of one dtype, sums over broadcast dims, products without 0 * inf.

Read `ops_elementwise.py` first, and come back for the details.
"""

from typing import Any

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd.tensor import Array, Tensor, as_array


def operands(*values: Any) -> tuple[Tensor, ...]:
    """Return the inputs of an operation as Tensors of one dtype, float32 or float64.

    Float Tensors decide the dtype. Numbers, arrays and integer Tensors beside them take it, so that nothing
    becomes float64 by accident; a float32 Tensor beside a float64 one is a mistake somewhere, and is refused
    (TypeError).
    """
    first = values[0]
    common = first.dtype if isinstance(first, Tensor) else None
    if common is not None and common.kind == "f":
        for value in values:
            if value is not first and (not isinstance(value, Tensor) or value.dtype != common):
                break
        else:
            return values  # the usual case, and in every operation of every step, so it should be quick
    dtypes = {value.dtype for value in values if isinstance(value, Tensor) and value.dtype.kind == "f"}
    if len(dtypes) > 1:
        got = " and ".join(sorted(map(str, dtypes)))
        raise TypeError(
            f"an operation needs Tensors of one dtype, got {got}; make them alike where they are created"
        )
    dtype = dtypes.pop() if dtypes else np.dtype(np.float64)
    return tuple(v if isinstance(v, Tensor) and v.dtype == dtype else constant(v, dtype) for v in values)


def constant(value: Any, dtype: np.dtype[Any]) -> Tensor:
    """Return numbers, an array or an integer Tensor as a constant Tensor of this dtype."""
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
    if np.isfinite(slope).all():
        return g * slope
    return np.multiply(g, slope, out=np.zeros_like(g), where=g != 0)


def over(g: Array, x: Array) -> Array:
    """Compute g / x, and 0 where g is 0, even if x is 0."""
    if x.all():
        return g / x
    return np.divide(g, x, out=np.zeros_like(g), where=g != 0)
