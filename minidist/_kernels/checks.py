"""What a kernel demands of its arrays, and the sentences it refuses the others with.

Both families of kernels come here: the NumPy twins (`reference/`) on every call, the compiled ones only when an
array is not plain C-ordered float32 or float64, so that an ordinary call pays nothing for the words.
Read next: `reference/`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))  # in the machine's byte order: '>f4' is another dtype


def array(operation: str, name: str, x: Any) -> np.ndarray:
    """Return `x` as an ordinary aligned array, or refuse what is none (TypeError)."""
    if not isinstance(x, np.ndarray) or isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"{operation}: {name} must be a NumPy array, got {type(x).__name__}; convert it with np.asarray"
        )
    return np.require(np.asarray(x), requirements="A")


def floats(operation: str, **arrays: Any) -> list[np.ndarray]:
    """Return the arrays, all float32 or all float64; refuse anything else by name (TypeError)."""
    checked = [array(operation, name, x) for name, x in arrays.items()]
    for name, x in zip(arrays, checked, strict=True):
        if x.dtype not in FLOATS:
            raise TypeError(
                f"{operation}: {name} has dtype {x.dtype!s}, expected float32 or float64 in this machine's byte "
                f"order; convert it with {name}.astype(np.float32)"
            )
    if any(x.dtype != checked[0].dtype for x in checked):
        got = ", ".join(f"{name} is {x.dtype}" for name, x in zip(arrays, checked, strict=True))
        raise TypeError(f"{operation}: all arrays must have one dtype, got: {got}; convert with .astype")
    return checked


def shape(operation: str, name: str, x: np.ndarray, expected: tuple[int, ...], reason: str) -> None:
    """Refuse an array of the wrong shape (ValueError); `reason` says what the shape follows from."""
    if x.shape != expected:
        raise ValueError(f"{operation}: {name} has shape {x.shape}, expected {expected} ({reason})")


def output(
    operation: str, out: Any, expected: tuple[int, ...], dtype: np.dtype, inputs: dict[str, np.ndarray]
) -> None:
    """Refuse an `out` of another dtype or shape, a read-only one, and one that overlaps an input (ValueError)."""
    if not isinstance(out, np.ndarray):
        raise ValueError(f"{operation}: out must be a NumPy array, got {type(out).__name__}")
    if out.dtype != dtype:
        raise ValueError(f"{operation}: out has dtype {out.dtype}, expected {dtype} like the inputs")
    shape(operation, "out", out, expected, "the shape of the result")
    if not out.flags.writeable:
        raise ValueError(f"{operation}: out is read-only; give an array that may be written")
    apart(operation, out, **inputs)


def overlap(x: np.ndarray, y: np.ndarray) -> bool:
    """Say whether two arrays have an element in common (when that is too hard to tell: yes)."""
    try:
        return np.shares_memory(x, y, max_work=10_000)  # type: ignore[arg-type]  # any number of steps is right
    except np.exceptions.TooHardError:
        return True


def needs_out(operation: str, out: np.ndarray | None, accumulate: bool) -> None:
    """Refuse `accumulate` when there is nothing to add to (ValueError)."""
    if accumulate and out is None:
        raise ValueError(f"{operation}: accumulate=True adds to out, but no out was given")


def product_shape(a: np.ndarray, b: np.ndarray) -> tuple[int, ...]:
    """Return the shape of a @ b, leading dims broadcast; ValueError where the two do not fit."""
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(
            f"matmul: both arrays need at least 2 dims, got shapes {a.shape} and {b.shape}; make a vector a row "
            "with x[None, :] or a column with x[:, None]"
        )
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"matmul: the last dim of a must equal the last but one of b, got shapes {a.shape} and {b.shape}"
        )
    try:
        leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(
            f"matmul: leading dims do not broadcast, got shapes {a.shape} and {b.shape}"
        ) from None
    return (*leading, a.shape[-2], b.shape[-1])


def apart(operation: str, out: Any, **inputs: np.ndarray) -> None:
    """Refuse an `out` that overlaps an input (ValueError)."""
    for name, x in inputs.items():
        if isinstance(out, np.ndarray) and overlap(out, x):
            raise ValueError(f"{operation}: out overlaps {name}, which is still read; give other memory")


def bias(x: Any, weight: Any, bias: Any) -> None:
    """Refuse a bias that is not one number per column of the weight, in the same dtype (TypeError, ValueError)."""
    x, weight, bias = floats("linear", x=x, weight=weight, bias=bias)
    shape("linear", "bias", bias, weight.shape[-1:], "one number per column of weight")


def activation(name: str | None) -> int:
    """Return the number that C knows an activation by (ValueError for one that there is none of)."""
    if name not in (None, "relu", "gelu"):
        raise ValueError(f"linear: there is no activation {name!r}; choose one of: None, 'relu', 'gelu'")
    return (None, "relu", "gelu").index(name)


def threads(n: int) -> int:
    """Return a number of threads (ValueError below 1)."""
    if n < 1:
        raise ValueError(f"threads: got {n}, expected a number of threads from 1 up")
    return n


def axes(operation: str, axis: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """Return the axes of a reduction as sorted numbers from 0 (ValueError when out of range or repeated)."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    for one in given:
        if not -ndim <= one < ndim:
            raise ValueError(f"{operation}: axis {one} is out of range for an array of {ndim} dims")
    positive = sorted(one % ndim for one in given)
    if len(set(positive)) < len(positive):
        raise ValueError(f"{operation}: axis {axis} names a dim twice")
    return tuple(positive)


def reduced_shape(full: tuple[int, ...], over: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """Return the shape that is left after reducing over the axes `over`."""
    if keepdims:
        return tuple(1 if i in over else n for i, n in enumerate(full))
    return tuple(n for i, n in enumerate(full) if i not in over)


def not_empty(operation: str, full: tuple[int, ...], over: tuple[int, ...]) -> None:
    """Refuse a largest element of nothing (ValueError), as NumPy does."""
    if any(full[i] == 0 for i in over) and 0 not in reduced_shape(full, over, False):
        raise ValueError(f"{operation}: an array of shape {full} has no largest element along axes {over}")


def last_dim(operation: str, x: np.ndarray) -> None:
    """Refuse a 0-d array where the operation runs along the last dim (ValueError)."""
    if x.ndim == 0:
        raise ValueError(f"{operation}: x must have at least one dim, got a 0-d array")


def matrix(operation: str, name: str, x: np.ndarray) -> tuple[int, int]:
    """Return the shape of a matrix; ValueError when it is none."""
    if x.ndim != 2:
        raise ValueError(f"{operation}: {name} must have 2 dims, got shape {x.shape}")
    return x.shape[0], x.shape[1]


def heads(operation: str, name: str, x: np.ndarray, expected: tuple[int, ...] | None = None) -> None:
    """Refuse what is not (batch, heads, time, dim), or not of the same shape as the array before (ValueError)."""
    if x.ndim != 4 or (expected is not None and x.shape != expected):
        like = "" if expected is None else f", expected {expected} like the arrays before it"
        raise ValueError(
            f"{operation}: {name} must have shape (batch, heads, time, dim), got {x.shape}{like}"
        )


def first_step(step: int) -> None:
    """Refuse a step number below 1 (ValueError): at 0 Adam's bias correction divides by zero."""
    if step < 1:
        raise ValueError(f"adamw: step counts from 1, got {step}")


def labels(operation: str, y: Any, n: int, classes: int) -> np.ndarray:
    """Return labels as contiguous int64 of shape (n,); IndexError for the first one that is no class."""
    y = array(operation, "labels", y)
    if y.dtype.kind not in "iu":
        raise TypeError(f"{operation}: labels must be integers, got dtype {y.dtype}")
    shape(operation, "labels", y, (n,), "one label per row of logits")
    y = np.ascontiguousarray(y, np.int64)
    wrong = (y < 0) | (y >= classes)
    if wrong.any():
        position = int(wrong.argmax())
        raise IndexError(
            f"{operation}: label {y[position]} at position {position} is out of range; "
            f"with {classes} classes the allowed range is 0 to {classes - 1}"
        )
    return y


def vectors(operation: str, written: tuple[str, ...], **arrays: Any) -> list[np.ndarray]:
    """Return flat vectors of one dtype and length; those `written` must be writable, contiguous and apart."""
    checked = floats(operation, **arrays)
    (first, *_), length = arrays, checked[0].size
    for name, given, x in zip(arrays, arrays.values(), checked, strict=True):
        if x.ndim != 1:
            raise ValueError(f"{operation}: {name} must be a flat vector, got shape {x.shape}")
        shape(operation, name, x, (length,), f"the length of {first}")
        if name in written and not (given.flags.carray and x.flags.c_contiguous):
            raise ValueError(
                f"{operation}: {name} is updated in place, so it must be writable and contiguous"
            )
    for i, name in enumerate(arrays):
        for j, other in enumerate(arrays):
            if i < j and (name in written or other in written) and overlap(checked[i], checked[j]):
                raise ValueError(f"{operation}: {name} and {other} overlap; each needs memory of its own")
    return [x if x.flags.c_contiguous else x.copy() for x in checked]


def vectors_to_sum(operation: str, given: Sequence[Any], most: int) -> list[np.ndarray]:
    """Return vectors that are summed in place; refuse other dtypes or lengths, read-only ones, none, too many."""
    if not 0 < len(given) <= most:
        raise ValueError(f"{operation}: got {len(given)} vectors, expected 1 to {most}")
    checked = floats(operation, **{f"vectors[{i}]": x for i, x in enumerate(given)})
    for i, x in enumerate(given):
        if x.ndim != 1 or x.shape != checked[0].shape:
            raise ValueError(
                f"{operation}: vectors[{i}] has shape {x.shape}, expected one dim and the length of vectors[0], "
                f"{checked[0].size}"
            )
        if not x.flags.carray:
            raise ValueError(f"{operation}: vectors[{i}] is written, so it must be writable and contiguous")
    return checked


def numbers(operation: str, x: Any, i: int, written: bool) -> None:
    """Refuse what is no contiguous row of int64 (TypeError), or has no place i (IndexError)."""
    good = isinstance(x, np.ndarray) and x.dtype == np.int64 and x.ndim == 1 and x.flags.c_contiguous
    if not good or (written and not x.flags.writeable):
        got = f"{x.dtype} of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
        raise TypeError(
            f"{operation}: numbers is {got}, expected a contiguous row of int64"
            f"{', writable' if written else ''}"
        )
    if not 0 <= i < x.size:
        raise IndexError(f"{operation}: place {i} is out of range, numbers has {x.size}")


def meeting(operation: str, lines: Any, rank: int, told: Any, parts: Any, most: int) -> None:
    """Refuse what ranks cannot meet by: lines (ranks, 2 + facts), told (facts,), parts (ranks, n)."""
    good = all(isinstance(x, np.ndarray) and x.dtype == np.int64 for x in (lines, told))
    if not good or lines.ndim != 2 or lines.strides[1] != 8 or not lines.flags.writeable or told.ndim != 1:
        raise TypeError(
            f"{operation}: expected lines and told of int64, rows that are contiguous, lines writable"
        )
    vectors_to_sum(operation, parts, most)
    if lines.shape[0] != len(parts) or lines.shape[1] < 2 + told.size or not told.flags.c_contiguous:
        raise ValueError(
            f"{operation}: lines has shape {lines.shape}, told {told.shape}, for {len(parts)} parts: expected a line "
            "for each part, with 2 numbers and those told"
        )
    if not 0 <= rank < len(parts):
        raise IndexError(f"{operation}: rank {rank} is out of range, there are {len(parts)} parts")


def staging(
    operation: str, lines: Any, rank: int, told: Any, scratch: Any, x: Any, out: Any, step: int, most: int
) -> None:
    """Refuse what cannot be summed through a scratch: lines and told as to meet by, flat x and out, whole blocks."""
    meeting(operation, lines, rank, told, scratch, most)
    for name, vector in (("x", x), ("out", out)):
        good = isinstance(vector, np.ndarray) and vector.dtype == scratch.dtype and vector.ndim == 1
        if not good or not vector.flags.c_contiguous or not vector.flags.aligned or vector.shape != x.shape:
            got = (
                f"{vector.dtype} {vector.shape}" if isinstance(vector, np.ndarray) else type(vector).__name__
            )
            raise ValueError(
                f"{operation}: {name} is {got}, expected a contiguous vector of {scratch.dtype}, x and out alike"
            )
    if not out.flags.writeable:
        raise ValueError(f"{operation}: out is written, so it must be writable")
    if not scratch.shape[1] or scratch.shape[1] * scratch.itemsize % 128:
        raise ValueError(
            f"{operation}: scratch has rows of {scratch.shape[1]} numbers, expected two blocks of whole cache lines"
        )
    if step < 0:
        raise IndexError(f"{operation}: step is {step}, expected at least 0")
