"""The tape: what was computed, and how to get its gradient.

    x ----> multiply ----> sum ----> loss           forward: `record` adds a node for each operation
    x.grad <- * 2x  <----- broadcast <- 1.0         backward: gradient functions are called, newest node first

An operation is its forward and, beside it, its gradient, one function for each input:

    def multiply(a, b):
        a_saved, b_saved = keep(a), keep(b)
        return record(a.data * b.data, (a, lambda g: g * b_saved()), (b, lambda g: g * a_saved()))

A node knows the nodes of its inputs, not its output, so whatever nobody needs any more is freed at once.
There is one function for each input so that a schedule can compute input gradients now, because the stage
before is waiting for them, and weight gradients later. Read next: `backward.py`.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import count
from types import TracebackType
from typing import Any

import numpy as np

from minidist.autograd import source
from minidist.autograd.parameter import Parameter
from minidist.autograd.tensor import Array, Tensor

Gradient = Callable[[Any], Any]  # the gradient of the output -> the gradient of one input

_numbers = count()  # the order of creation; threads may share it, because it only has to increase
_recording = ContextVar("recording", default=True)  # each thread has its own


def now() -> int:
    """Give a number above those of all nodes so far, and below those of all that follow."""
    return next(_numbers)


class no_grad:
    """Compute without recording: `with no_grad(): ...` saves the tape's time and memory, for evaluation."""

    def __enter__(self) -> None:
        self._token = _recording.set(False)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _recording.reset(self._token)


class direct:
    """Mark a gradient function f(g, out, accumulate) that can write straight into memory.

    For a Parameter, `out` is its gradient, and the function writes there, or adds if `accumulate` is true:
    the result of a matrix product lands in the flat vector without a copy. Where there is no memory yet,
    `out` is None and the function returns a new array, which it must not keep.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any, Any, bool], Any]) -> None:
        self.function = function


def joint(function: Callable[[Any], tuple[Any, ...]], count: int) -> list["Part"]:
    """Make `count` gradient functions of one f(g) that returns `count` gradients at once, as a tuple.

    For fused kernels. Give one to each input of an operation; backward calls f once for all of them.
    """
    return [Part(function, i) for i in range(count)]


class Part:
    """One of the gradient functions that `joint` made: the i-th result of the common function."""

    __slots__ = ("function", "i")

    def __init__(self, function: Callable[[Any], tuple[Any, ...]], i: int) -> None:
        self.function = function
        self.i = i


class Node:
    """One operation that was carried out.

    inner: (node, gradient function) for the inputs that were computed by another node.
    leaves: (tensor, gradient function) for the inputs that were not: parameters, mostly.
    before: turns the gradient of the output into what all gradient functions are given; or None.
    watched: parameters among the inputs whose watch wants to know when their weights have been read.
    number: newer nodes have larger ones.
    """

    __slots__ = (
        "before",
        "inner",
        "leaves",
        "number",
        "watched",
    )  # filled by `record`, which is in every step's way

    inner: list[tuple["Node", Any]]
    leaves: list[tuple[Tensor, Any]]
    before: Gradient | None
    watched: list[Parameter]
    number: int

    def release(self) -> None:
        """Forget the gradient functions, and with them the arrays that they saved."""
        self.inner = self.leaves = _released
        self.before = None


class _Released:
    """What stands in place of a node's inputs after `release`: to walk there again is a mistake."""

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError(
            "this part of the tape was released by a backward before (release=True), with the arrays it had saved; "
            "run forward again, or leave release out of the first backward"
        )


_released: Any = _Released()


def keep(tensor: Tensor) -> Callable[[], Array]:
    """Save an input for backward; call the result there to get the array.

    Of a Parameter only the version is kept, because its array will hold other weights after the next update. Then
    backward refuses, unless somebody has stashed that version (`minidist/split/pipedream.py`).
    """
    if not isinstance(tensor, Parameter):
        array = tensor.data
        return lambda: array
    version, line = tensor.version, source.user_line()

    def reread() -> Array:
        if tensor.version != version:
            if tensor.stash is not None and version in tensor.stash:
                return tensor.stash[version]
            raise RuntimeError(
                f"{tensor.label} was used at {source.describe(line)} in version {version}, but backward "
                f"finds version {tensor.version}, updated at {tensor.updated_at}: its gradient would mix two "
                "sets of weights; call backward before updating, or run forward again after it"
            )
        return tensor.data

    return reread


def will_record(*inputs: Tensor) -> bool:
    """Say whether an operation on these will be recorded, so that it pays to save something for its gradient."""
    return _recording.get() and any(tensor.requires_grad for tensor in inputs)


def record(data: Any, *inputs: tuple[Tensor, Any], before: Gradient | None = None) -> Tensor:
    """Make the output of an operation: its array, and for each input (tensor, gradient function).

    The array becomes read-only. Inputs that need no gradient are dropped, with what their functions saved.
    Where all gradient functions begin alike, `before` is that beginning, and is called once for all of them.
    """
    out = Tensor.__new__(Tensor)
    if type(data) is not np.ndarray:
        data = np.asarray(data)  # NumPy returns scalars in place of 0-d arrays
    data.setflags(False)  # nobody may write
    out.data = data
    out.grad = out.node = None
    out.requires_grad = False

    inner: list[Any] = []
    leaves: list[Any] = []
    watched: list[Any] = []
    for pair in inputs:
        tensor = pair[0]
        if tensor.node is not None:
            inner.append((tensor.node, pair[1]))
        elif tensor.requires_grad:
            leaves.append(pair)
        if tensor.watch is not None:
            watched.append(tensor)
            tensor.watch.weights_done(tensor)
    if (inner or leaves) and _recording.get():
        node = Node()
        node.number = next(_numbers)
        node.inner, node.leaves, node.watched, node.before = inner, leaves, watched, before
        out.node = node
        out.requires_grad = True
    return out
