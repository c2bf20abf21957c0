"""The tape: what was computed, and the walk back through it.

    x ----> multiply ----> sum ----> loss           forward: `record` adds a node for each operation
    x.grad <- * 2x  <----- broadcast <- 1.0         backward: gradient functions are called, newest node first

An operation is its forward and, beside it, its gradient, one function for each input:

    def multiply(a, b):
        a_saved, b_saved = keep(a), keep(b)
        return record(a.data * b.data, (a, lambda g: g * b_saved()), (b, lambda g: g * a_saved()))

A node knows the nodes of its inputs, not its output, so whatever nobody needs any more is freed at once.
There is one function for each input so that a schedule can compute input gradients now, because the stage
before is waiting for them, and weight gradients later (`defer`). Read next: `ops_elementwise.py`.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from itertools import count
from operator import attrgetter
from types import TracebackType
from typing import Any

import numpy as np

from minidist.autograd import source
from minidist.autograd.parameter import Parameter
from minidist.autograd.tensor import Array, Tensor

Gradient = Callable[[Any], Any]  # the gradient of the output -> the gradient of one input

_numbers = count()  # the order of creation; threads may share it, because it only has to increase
_recording = ContextVar("recording", default=True)  # each thread has its own


class no_grad:
    """Compute without recording: `with no_grad(): ...` saves the tape's time and memory, for evaluation."""

    def __enter__(self) -> None:
        self._token = _recording.set(False)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _recording.reset(self._token)


class direct:
    """Mark a gradient function f(g, out, accumulate) that can write straight into memory.

    For a Parameter, `out` is its gradient, and the function writes there, or adds if `accumulate` is true:
    the result of a matrix product lands in the flat vector without a copy. Elsewhere `out` is None and the
    function returns a new array.
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
    watched: parameters among the inputs whose watch wants to know when their weights have been read.
    """

    __slots__ = ("inner", "leaves", "number", "watched")

    def __init__(self, inner: list[Any], leaves: list[Any], watched: list[Parameter]) -> None:
        self.number = next(_numbers)
        self.inner = inner
        self.leaves = leaves
        self.watched = watched


def keep(tensor: Tensor) -> Callable[[], Array]:
    """Save an input for backward; call the result there to get the array.

    Of a Parameter only the version is kept, because its array will hold other weights after the next update.
    """
    if not isinstance(tensor, Parameter):
        array = tensor.data
        return lambda: array
    version, line = tensor.version, source.user_line()

    def reread() -> Array:
        if tensor.version != version:
            raise RuntimeError(
                f"{tensor.label} was used at {source.describe(line)} in version {version}, but backward "
                f"finds version {tensor.version}, updated at {tensor.updated_at}: its gradient would mix two "
                "sets of weights; call backward before updating, or run forward again after it"
            )
        return tensor.data

    return reread


def record(data: Any, *inputs: tuple[Tensor, Any]) -> Tensor:
    """Make the output of an operation: its array, and for each input (tensor, gradient function).

    The array becomes read-only. Inputs that need no gradient are dropped, with what their functions saved.
    """
    out = Tensor.__new__(Tensor)
    if type(data) is not np.ndarray:
        data = np.asarray(data)  # NumPy returns scalars in place of 0-d arrays
    data.setflags(write=False)
    out.data = data
    out.grad = out.node = None
    out.requires_grad = False

    inner: list[Any] = []
    leaves: list[Any] = []
    watched: list[Parameter] = []
    for tensor, gradient in inputs:
        if tensor.node is not None:
            inner.append((tensor.node, gradient))
        elif tensor.requires_grad:
            leaves.append((tensor, gradient))
        if isinstance(tensor, Parameter) and tensor.watch is not None:
            watched.append(tensor)
            tensor.watch.weights_done(tensor)
    if (inner or leaves) and _recording.get():
        out.node = Node(inner, leaves, watched)
        out.requires_grad = True
    return out


class WeightPart:
    """A contribution to a parameter's gradient that backward left for later; `run()` computes and adds it."""

    __slots__ = ("_done", "_g", "_gradient", "_node", "parameter")

    def __init__(
        self, parameter: Parameter, gradient: Any, g: Array, node: Node, done: Callable[..., None]
    ) -> None:
        self.parameter = parameter
        self._gradient = gradient
        self._g = g
        self._node = node
        self._done = done

    def run(self) -> None:
        if type(self._gradient) is direct:
            self.parameter.accumulate_direct(self._gradient.function, self._g)
        else:
            self.parameter.accumulate(self._gradient(self._g))
        self._done(self._node, [self.parameter])


def backward(
    root: Tensor,
    grad: Any = None,
    defer: Iterable[Parameter] = (),
    ready: Callable[[Parameter], None] | None = None,
    tick: Callable[[], None] | None = None,
) -> list[WeightPart]:
    """Walk the tape from `root` to the leaves, newest node first, and add to each leaf's gradient.

    grad: d(loss)/d(root), of root's shape and dtype; may be left out if root is the loss itself, one number.
    defer: parameters whose gradients are not computed now. Their parts are returned, for the caller to run.
    ready: called with a parameter after its last contribution, once no node that is left reads its weights.
    tick: called after every node, so that communication can advance meanwhile.

    A node is newer than all it was computed from, so when its turn comes, everything that it has contributed
    to has been through. The gradients on the way live in a table of this call, so a second backward starts
    afresh, and adds the same once more to the leaves. There is no recursion, so a chain may be as long as
    memory lasts.
    """
    seed = _first_gradient(root, grad)
    if root.node is None:
        root.accumulate(seed)
        if ready is not None and isinstance(root, Parameter):
            ready(root)
        return []
    nodes = _newest_first(root.node)
    deferred = set(defer)
    uses = _count_uses(nodes) if ready is not None else {}

    def done(node: Node, leaves: Iterable[Tensor]) -> None:
        for parameter in node.watched:
            parameter.watch.weights_done(parameter)  # type: ignore[union-attr]
        if ready is not None:
            for leaf in leaves:
                uses[leaf] -= 1
                if not uses[leaf] and isinstance(leaf, Parameter):
                    ready(leaf)

    parts: list[WeightPart] = []
    gradients: dict[Node, Array] = {root.node: seed}
    for node in nodes:
        g = gradients.pop(node)
        results: Any = None  # of joint gradient functions
        for source_node, gradient in node.inner:  # inputs first: somebody may be waiting for these
            if type(gradient) is Part:
                results = results or gradient.function(g)
                part = results[gradient.i]
            elif type(gradient) is direct:
                part = gradient.function(g, None, False)
            else:
                part = gradient(g)
            if source_node in gradients:
                part = gradients[source_node] + part  # not +=: others may hold the array
            if type(part) is not np.ndarray:
                part = np.asarray(part)  # NumPy returns scalars in place of 0-d arrays
            gradients[source_node] = part
        for leaf, gradient in node.leaves:
            if type(gradient) is Part:
                results = results or gradient.function(g)
                gradient = _returning(results[gradient.i])
            if leaf in deferred:
                parts.append(WeightPart(leaf, gradient, g, node, done))
            elif type(gradient) is direct:
                leaf.accumulate_direct(gradient.function, g)
            else:
                leaf.accumulate(gradient(g))
        if node.leaves or node.watched:
            done(node, [leaf for leaf, _ in node.leaves if leaf not in deferred])
        if tick is not None:
            tick()
    return parts


def _count_uses(nodes: list[Node]) -> dict[Tensor, int]:
    """Count how often each leaf is an input."""
    uses: dict[Tensor, int] = {}
    for node in nodes:
        for leaf, _ in node.leaves:
            uses[leaf] = uses.get(leaf, 0) + 1
    return uses


def _first_gradient(root: Tensor, grad: Any) -> Array:
    if not root.requires_grad:
        raise ValueError(
            "backward needs a tensor that was computed from one with requires_grad=True, outside no_grad(); "
            "this one was not"
        )
    if grad is None:
        if root.size != 1:
            raise ValueError(
                f"backward without a gradient needs a loss of one element, got shape {root.shape}; "
                f"reduce it first (.sum()), or give grad, an array of shape {root.shape}"
            )
        return np.ones(root.shape, root.dtype)
    if isinstance(grad, Tensor):
        grad = grad.data
    grad = np.asarray(grad)
    if grad.shape != root.shape or grad.dtype != root.dtype:
        raise ValueError(
            f"grad must be like the tensor, {root.dtype} of shape {root.shape}, "
            f"got {grad.dtype} of shape {grad.shape}"
        )
    return grad


def _newest_first(root: Node) -> list[Node]:
    """List every node that leads to `root`, in reverse order of creation."""
    found = {root}
    waiting = [root]
    while waiting:
        for node, _ in waiting.pop().inner:
            if node not in found:
                found.add(node)
                waiting.append(node)
    return sorted(found, key=attrgetter("number"), reverse=True)


def _returning(part: Array) -> Gradient:
    return lambda g: part
