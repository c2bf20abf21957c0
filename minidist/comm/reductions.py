"""How two values become one: the four reductions, and the dtypes they are computed in."""

from __future__ import annotations

import numpy as np

REDUCTIONS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def reduction(op: str, dtype: np.dtype) -> np.ufunc:
    """Give the function of a reduction by name; refuse what has no meaning for `dtype`."""
    if op not in REDUCTIONS:
        raise ValueError(f"op is {op!r}, expected one of {', '.join(map(repr, REDUCTIONS))}")
    if dtype.kind == "b" and op == "sum":
        raise TypeError(
            "a sum of bool is refused, for it may mean two things: to count, give x.astype(int); "
            "for 'any rank' use op='max', for 'every rank' op='min'"
        )
    if dtype.kind == "c" and op in ("max", "min"):
        raise TypeError(f"op={op!r} is refused for {dtype}: complex numbers have no order")
    return REDUCTIONS[op]


def working_dtype(dtype: np.dtype) -> np.dtype:
    """Give the dtype in which values are combined and sent: float16 would lose too much, so float32 is used."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype
