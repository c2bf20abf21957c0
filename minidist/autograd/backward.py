"""Backward: the walk over the tape, from the loss to everything that it depends on.

    newest node first    loss <- cross_entropy <- linear <- relu <- linear <- x
                                                  |  |              |  |
    gradients arrive                              w2 b2             w1 b1

A node is newer than all it was computed from. So when its turn comes, everything that it contributed to has
been through, and its own gradient is complete. There is no recursion, so a chain may be as long as memory
lasts.

For one process a loop of ten lines would do. The rest is what a distributed program needs while it runs: to
put the gradients of weights off (`defer`), to hear that one is final and may be sent (`ready`), and to keep
messages moving (`tick`). Read next: `ops_elementwise.py`.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import numpy as np

from minidist.autograd.parameter import Parameter
from minidist.autograd.tape import Gradient, Node, Part, direct
from minidist.autograd.tensor import Array, Tensor


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
        self._done(self._node, [(self.parameter, None)])


def backward(
    root: Tensor,
    grad: Any = None,
    defer: Iterable[Parameter] = (),
    ready: Callable[[Parameter], None] | None = None,
    tick: Callable[[], None] | None = None,
    release: bool = False,
) -> list[WeightPart]:
    """Walk the tape from `root` to the leaves, newest node first, and add to each leaf's gradient.

    grad: d(loss)/d(root), of root's shape and dtype; may be left out if root is the loss itself, one number.
    defer: parameters whose gradients are not computed now. Their parts are returned, for the caller to run.
    ready: called with a parameter after its last contribution, once no node that is left reads its weights.
    tick: called after every node, so that communication can advance meanwhile.
    release: free what each node has saved as soon as it was used. The tape cannot be walked again, and while
        gradients of early layers are made, the memory of the later ones is free for them.

    The gradients on the way live in a table of this call, so a second backward starts afresh, and adds the
    same once more to the leaves.
    """
    seed = _first_gradient(root, grad)
    if root.node is None:
        root.accumulate(seed)
        if ready is not None and isinstance(root, Parameter):
            ready(root)
        return []
    nodes = newest_first(root.node)
    deferred = set(defer)
    uses: dict[Tensor, int] = {}  # how often a leaf is an input of the nodes that are left
    if ready is not None:
        for node in nodes:
            for leaf, _ in node.leaves:
                uses[leaf] = uses.get(leaf, 0) + 1

    def done(node: Node, leaves: Iterable[tuple[Tensor, Any]]) -> None:
        for parameter in node.watched:
            parameter.watch.weights_done(parameter)  # type: ignore[union-attr]
        if ready is not None:
            for leaf, _ in leaves:
                uses[leaf] = left = uses[leaf] - 1
                if not left and isinstance(leaf, Parameter):
                    ready(leaf)

    parts: list[WeightPart] = []
    gradients: dict[Node, Array] = {root.node: seed}
    ours: set[Node] = set()  # those whose gradient is an array that nobody else holds, so it can be added to
    for node in nodes:
        g: Any = gradients.pop(node)
        if node.before is not None:
            g = node.before(g)
        results: Any = None  # of joint gradient functions
        for behind, gradient in node.inner:  # inputs first: somebody may be waiting for these
            held = gradients.get(behind)
            if type(gradient) is Part:
                results = results or gradient.function(g)
                part = results[gradient.i]
            elif type(gradient) is not direct:
                part = gradient(g)
            elif behind in ours:
                gradient.function(g, held, True)
                continue
            else:
                part = gradient.function(g, None, False)
                ours.add(behind)
            if held is not None:
                part = held + part  # not +=, because others may hold the array
                ours.add(behind)
            if type(part) is not np.ndarray:
                part = np.asarray(part)  # NumPy returns scalars in place of 0-d arrays
            gradients[behind] = part
        for leaf, gradient in node.leaves:
            if type(gradient) is Part:
                results = results or gradient.function(g)
                gradient = _returning(results[gradient.i])
            if deferred and leaf in deferred:
                parts.append(WeightPart(leaf, gradient, g, node, done))
            elif type(gradient) is direct:
                leaf.accumulate_direct(gradient.function, g)
            else:
                leaf.accumulate(gradient(g))
        if node.leaves or node.watched:
            done(node, [use for use in node.leaves if use[0] not in deferred] if deferred else node.leaves)
        if release:
            node.release()
            gradient = results = g = None  # the last names of what is freed
        if tick is not None:
            tick()
    return parts


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
        return np.array(1, root.dtype).reshape(root.shape)
    if isinstance(grad, Tensor):
        grad = grad.data
    grad = np.asarray(grad)
    if grad.shape != root.shape or grad.dtype != root.dtype:
        raise ValueError(
            f"grad must be like the tensor, {root.dtype} of shape {root.shape}, "
            f"got {grad.dtype} of shape {grad.shape}"
        )
    return grad


def newest_first(root: Node) -> list[Node]:
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
