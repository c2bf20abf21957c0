"""Matrix products; how to compute them fast stands in `../matmul.h`."""

from typing import Any

import numpy as np

from minidist._kernels import checks
from minidist._kernels.reference.elementwise import gelu, relu


def matmul(a: Any, b: Any, out: np.ndarray | None = None, accumulate: bool = False) -> np.ndarray:
    """Multiply matrices: (..., m, k) @ (..., k, n) -> (..., m, n), leading dims broadcast.

    With `out` the result is written there; with `accumulate` it is added to what stands there.
    """
    a, b = checks.floats("matmul", a=a, b=b)
    shape = checks.product_shape(a, b)
    checks.needs_out("matmul", out, accumulate)
    if out is None:
        return np.matmul(a, b)
    checks.output("matmul", out, shape, a.dtype, {"a": a, "b": b})
    if accumulate:
        out += np.matmul(a, b)
    else:
        np.matmul(a, b, out=out)
    return out


def linear(
    x: Any,
    weight: Any,
    bias: np.ndarray | None = None,
    activation: str | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Compute activation(x @ weight + bias): (..., k) @ (k, n) + (n,) -> (..., n); activation: "relu", "gelu", None."""
    bend = (None, relu, gelu)[checks.activation(activation)]
    if bias is not None:
        checks.bias(x, weight, bias)
        checks.apart("linear", out, bias=bias)
    y = matmul(x, weight, out)
    if bias is not None:
        y += bias
    if bend is not None:
        y[...] = bend(y)
    return y


def threads(n: int | None = None) -> int:
    """Set how many threads a large product may use; return how many it was. NumPy's own library decides here: 1."""
    if n is not None:
        checks.threads(n)
    return 1
