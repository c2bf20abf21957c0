"""Which arrays can travel, and how they are made ready for it.

A message is a row of bytes, and bytes know neither dtype nor memory order. So every array is brought to one
form first: native byte order, C order (the last dim contiguous). It is copied only if it is not in that form
already. What could not arrive as the same *values* on another rank is refused here, by name.

Read `message.py` next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# bool, signed and unsigned integers, floats, complex numbers: kinds whose bytes mean the same on every rank.
KINDS = "biufc"


def as_array(x: Any, what: str = "x") -> np.ndarray:
    """Give x as a C-ordered array of native byte order, copying only where needed.

    Lists, scalars and array-likes are converted; shape () stays (). Masked arrays and dtypes that are not
    numbers are refused (TypeError).
    """
    if type(x) is not np.ndarray:
        if isinstance(x, np.ma.MaskedArray):
            raise TypeError(
                f"{what} is a masked array, and a mask does not travel: give {what}.filled(value) or {what}.data"
            )
        if x is None:
            raise TypeError(f"{what} is None, expected an array or a number on this rank")
        try:
            x = np.asarray(x)
        except ValueError as error:
            raise TypeError(
                f"{what} is a {type(x).__name__} that is not an array of numbers: {error}"
            ) from None
    if x.dtype.kind not in KINDS:
        raise TypeError(
            f"{what} has dtype {x.dtype}, expected bool, integers, floats or complex numbers: "
            "convert it with .astype(...)"
        )
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    return np.asarray(x, order="C")


def check_out(out: Any, what: str = "out") -> np.ndarray:
    """Check that `out` can be filled with what arrives; any memory order and byte order will do."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{what} is a {type(out).__name__}, expected a NumPy array to fill")
    if isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array, and a mask cannot be received: give {what}.data")
    if out.dtype.kind not in KINDS:
        raise TypeError(f"{what} has dtype {out.dtype}, expected bool, integers, floats or complex numbers")
    if not out.flags.writeable:
        raise ValueError(
            f"{what} is read-only, expected an array that can be filled: give a copy, {what}.copy()"
        )
    return out


def is_plain(array: np.ndarray) -> bool:
    """Say whether an array's memory can be filled by bytes directly: C order, native byte order."""
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


def cut(length: int, size: int, counts: Any = None) -> list[slice]:
    """Cut `length` rows into `size` slices: by `counts`, or as equal as they can be (first ones larger)."""
    if counts is None:
        base, extra = divmod(length, size)
        counts = [base + 1] * extra + [base] * (size - extra)
    counts = [int(count) for count in counts]
    if len(counts) != size or min(counts) < 0 or sum(counts) != length:
        raise ValueError(f"counts are {counts}, expected {size} numbers >= 0 whose sum is {length}")
    pieces, start = [], 0
    for count in counts:
        pieces.append(slice(start, start + count))
        start += count
    return pieces


def describe(dtype: Any, shape: tuple[int, ...]) -> str:
    """Name a dtype and a shape in the way messages to the user do: float32 (3, 4)."""
    return f"{np.dtype(dtype)} {tuple(shape)}"
