"""Numbers that say where they come from: what stands in a receive buffer until the program has waited.

What is read too early must not look like data. So the buffer of an `irecv` is filled with NaN, and integers with the
smallest number there is. A NaN has bits to spare, and arithmetic hands them on:

    float64    0 11111111111 1 nnnnnnnnnnnnnnnnnnnnnn 0...0        sum(buffer) * 2 + 1 is a NaN with the same n
    float32    0 11111111    1 nnnnnnnnnnnnnnnnnnnnnn              (a float16 has the first nine of them)

Here n is the *mark* of one receive. So a number that was computed from a buffer before its `wait` can be told from
any other NaN, wherever it turns up, together with the line that posted the receive.

IEEE 754-2019, section 6.2.3: an operation on a NaN should give a NaN with its payload, and all our processors do so.
Read `requests.py` next, which poisons and looks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

# No other NaN begins with these bits; the next six are the number's, and all nine are there in a float16 too.
FIRST, MARKS = 0b101 << 19, 64
MANY = 1 << 16  # of an array that is larger, only some numbers are looked at
# bytes: (bits as, where the mark stands)
_BITS = {2: (np.uint16, 13), 4: (np.uint32, 0), 8: (np.uint64, -29)}


def marks() -> Iterator[int]:
    """Give one mark after the other, in a circle."""
    return (FIRST | (number % MARKS) << 13 for number in itertools.count())


def fill(buffer: np.ndarray, mark: int) -> None:
    """Poison a buffer of any memory order."""
    kind = buffer.dtype.kind
    if kind in "iu":
        buffer[...] = np.iinfo(buffer.dtype).min if kind == "i" else np.iinfo(buffer.dtype).max
    elif kind in "fc":
        buffer[...] = _nan(buffer.dtype.newbyteorder("="), mark)


@functools.cache  # and so never freed: the program's next small np.empty would find the poison in that memory
def _nan(dtype: np.dtype, mark: int) -> np.ndarray:
    """Give a NaN that carries the mark, where the format is one of those above."""
    real = np.zeros((), dtype).real.dtype
    if real.itemsize not in _BITS:
        return np.full((), np.nan, dtype)
    unsigned, shift = _BITS[real.itemsize]
    bits = np.full(dtype.itemsize // real.itemsize, np.nan, real).view(unsigned)
    bits |= unsigned(mark >> shift if shift >= 0 else mark << -shift)
    return bits.view(dtype)


def found(value: Any) -> set[int]:
    """Give the marks of all poison in an array or a number."""
    array = np.asarray(value)
    if array.dtype.kind not in "fc" or array.real.dtype.itemsize not in _BITS:
        return set()
    numbers = np.stack([array.real, array.imag]) if array.dtype.kind == "c" else array
    nans = np.atleast_1d(numbers[np.isnan(numbers)])
    if nans.size == 0:
        return set()
    unsigned, shift = _BITS[nans.dtype.itemsize]
    bits = np.unique(nans.view(unsigned)).astype(np.uint64)
    payload = bits << np.uint64(shift) if shift >= 0 else bits >> np.uint64(-shift)
    return {int(mark) for mark in payload & np.uint64(0x3FFFFF)}


def is_all(value: Any, mark: int) -> bool:
    """Say whether a value was computed from one poisoned buffer and nothing else."""
    if isinstance(value, (float, np.floating, np.complexfloating)):
        return found(value) == {mark}
    if type(value) is not np.ndarray or value.size == 0 or value.dtype.kind not in "fc":
        return False
    if found(value.flat[0]) != {mark}:
        return False
    sample = value if value.size <= MANY else value.reshape(-1)[:MANY]
    return bool(np.isnan(sample).all()) and found(sample) == {mark}
