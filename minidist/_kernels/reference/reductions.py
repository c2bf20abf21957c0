"""Sums, maxima and what is made of them, over axes; the fast ones: `../reductions.h`, `../argmax.h`."""

from typing import Any

import numpy as np

from minidist._kernels import checks

Axes = int | tuple[int, ...] | None


def sum(  # the kernels carry NumPy's names
    x: Any, axis: Axes = None, keepdims: bool = False, out: np.ndarray | None = None, accumulate: bool = False
) -> np.ndarray:
    """Sum over the axes, all of them by default; the sum of nothing is 0. `out`, `accumulate`: as in `matmul`."""
    (x,) = checks.floats("sum", x=x)
    over = checks.axes("sum", axis, x.ndim)
    checks.needs_out("sum", out, accumulate)
    result = np.asarray(x.sum(axis=over, keepdims=keepdims))
    if out is None:
        return result
    checks.output("sum", out, result.shape, x.dtype, {"x": x})
    out[...] = out + result if accumulate else result
    return out


def max(x: Any, axis: Axes = None, keepdims: bool = False) -> np.ndarray:
    """Find the largest element over the axes; nan where there is one. ValueError if there is no element."""
    (x,) = checks.floats("max", x=x)
    over = checks.axes("max", axis, x.ndim)
    checks.not_empty("max", x.shape, over)
    if x.size == 0:
        return np.empty(checks.reduced_shape(x.shape, over, keepdims), x.dtype)
    return np.asarray(x.max(axis=over, keepdims=keepdims))


def argmax(x: Any, axis: int | None = None) -> np.ndarray:
    """Find where the first largest element is (the first nan, if any), as int64; axis None: in flat C order."""
    (x,) = checks.floats("argmax", x=x)
    over = checks.axes("argmax", axis, x.ndim)
    checks.not_empty("argmax", x.shape, over)
    return np.asarray(x.argmax(axis=axis), np.int64)


def sum_of_squares(x: Any) -> float:
    """Sum the squares of all elements in float64: the squared norm of a gradient, say."""
    (x,) = checks.floats("sum_of_squares", x=x)
    return float(np.sum(np.square(x, dtype=np.float64)))


def log_sum_exp(x: Any, axis: int = -1, keepdims: bool = False) -> np.ndarray:
    """Compute log(sum(exp(x))) along one axis without overflow; of nothing, or of -inf alone, it is -inf."""
    (x,) = checks.floats("log_sum_exp", x=x)
    over = checks.axes("log_sum_exp", axis, x.ndim)
    if x.shape[over[0]] == 0:
        return np.full(checks.reduced_shape(x.shape, over, keepdims), -np.inf, x.dtype)
    top = x.max(axis=over, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        result = top + np.log(np.exp(x - top).sum(axis=over, keepdims=True))
    result = np.where(np.isinf(top), top, result)  # inf - inf would be nan
    return result if keepdims else result.squeeze(over)
