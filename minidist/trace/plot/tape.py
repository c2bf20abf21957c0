"""Draw the tape behind a loss: a line for each operation, in the order of their numbers, and what parameters it reads.

    [ layers.0.weight (64, 32) ]--+--> linear (8, 32)        what the next line needs is handed straight down,
    [ layers.0.bias (32,)      ]--+      |      \\            what a later line needs goes round on the right
    [ layers.1.weight (32, 10) ]--+--> linear    |
    [ layers.1.bias (10,)      ]--+      |       |
                                        add <---+            backward goes the other way

What needs no gradient, such as the data, is not on the tape. Read next: `minidist/autograd/tape.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minidist.autograd import Parameter, Tensor
from minidist.autograd.backward import newest_first
from minidist.autograd.tape import Node, Part, direct
from minidist.errors import UserError
from minidist.trace.plot import style
from minidist.trace.plot.boxes import EDGE, box, canvas, write

MOST = 40  # operations that can be read in one picture
HIGH, STEP, GAP = 0.26, 0.3, 0.2  # inches: a box, from one parameter to the next, between operations
LEFT, WIDE = 3.2, 2.5  # of the operations
LEAF = 2.7  # the width of a parameter


def tape(loss: Tensor) -> Any:
    """Draw all operations that lead to `loss`, with the shapes of what they give.

    The tape keeps no shapes: they are found by walking it backward with zeros, and no gradient changes. So where
    collectives are on it, all ranks must draw. Raises UserError where there are no operations, or too many to read.
    """
    if loss.node is None:
        raise UserError("this tensor was not computed on the tape: draw a loss, outside of no_grad()")
    nodes = newest_first(loss.node)[::-1]
    if len(nodes) > MOST:
        raise UserError(
            f"the tape has {len(nodes)} operations, and {MOST} can be read in a picture: draw a smaller model, or a "
            "part of this one, by giving a tensor of an early layer"
        )
    shapes = _shapes(loss, nodes)
    leaves = [list(dict.fromkeys(leaf for leaf, _ in node.leaves)) for node in nodes]
    tops, height = [], 0.75
    for of_node in leaves:
        tops.append(height)
        height += max(HIGH, STEP * len(of_node)) + GAP
    several = "s" * (len(nodes) != 1)
    figure, ax = canvas(height, f"The tape: {len(nodes)} operation{several}, the first one on top")
    write(ax, EDGE, 0.5, "left: parameters; right: operations, and the shape of what they give")
    for node, of_node, top in zip(nodes, leaves, tops, strict=True):
        for place, leaf in enumerate(of_node):
            colour = style.SKY if isinstance(leaf, Parameter) else style.PALE
            y = top + STEP * place
            box(ax, EDGE, y, LEAF, HIGH, _leaf_name(leaf), facecolor=colour)
            _arrow(ax, [(EDGE + LEAF, y + HIGH / 2), (LEFT, top + HIGH / 2)])
        ends = 2.0 if node is loss.node else 0.8
        box(ax, LEFT, top, WIDE, HIGH, f"{name_of(node)} {shapes[node]}", linewidth=ends)
    _draw_uses(ax, nodes, tops)
    return figure


def _draw_uses(ax: Any, nodes: list[Node], tops: list[float]) -> None:
    """Draw an arrow from each operation to those that need what it gives."""
    number = {node: place for place, node in enumerate(nodes)}
    uses = sorted({(number[behind], number[node]) for node in nodes for behind, _ in node.inner})
    lanes: list[int] = []  # of each lane on the right: the line down to which it is taken
    round_about = []
    for start, end in uses:
        if end == start + 1:
            middle = LEFT + WIDE / 2
            _arrow(ax, [(middle, tops[start] + HIGH), (middle, tops[end])])
            continue
        lane = next((lane for lane, taken in enumerate(lanes) if taken <= start), len(lanes))
        lanes[lane : lane + 1] = [end]
        round_about.append((start, end, lane))
    right = LEFT + WIDE
    apart = min(0.2, (style.WIDTH - EDGE - right) / (len(lanes) + 1))
    for start, end, lane in round_about:
        x = right + apart * (lane + 1)
        out, back = tops[start] + HIGH * 0.7, tops[end] + HIGH * 0.3
        _arrow(ax, [(right, out), (x, out), (x, back), (right, back)])


def name_of(node: Node) -> str:
    """Give the name of an operation: that of the function in which its gradient functions were made."""
    gradient = [*node.inner, *node.leaves][0][1]
    function = gradient.function if isinstance(gradient, direct | Part) else gradient
    name: str = getattr(function, "__qualname__", "?").split(".<locals>")[0].rpartition(".")[2].strip("_")
    more = "" if node.before is None else getattr(node.before, "__name__", "").replace("_", " ")
    return f"{name} {more}".strip()


def _leaf_name(leaf: Tensor) -> str:
    own = leaf.name or "parameter" if isinstance(leaf, Parameter) else "tensor"
    return f"{own} {leaf.shape}"


def _shapes(loss: Tensor, nodes: list[Node]) -> dict[Node, tuple[int, ...]]:
    """Find the shape of what each node gave: its gradient has the same."""
    gradients: dict[Node, np.ndarray] = {nodes[-1]: np.zeros_like(loss.data)}
    for node in reversed(nodes):
        g: Any = gradients[node]
        if node.before is not None:
            g = node.before(g)
        for behind, gradient in node.inner:
            if isinstance(gradient, Part):
                part = gradient.function(g)[gradient.i]
            else:
                part = gradient.function(g, None, False) if isinstance(gradient, direct) else gradient(g)
            gradients[behind] = np.asarray(part)
    return {node: gradient.shape for node, gradient in gradients.items()}


def _arrow(ax: Any, way: list[tuple[float, float]]) -> None:
    """Draw a line with corners, and a point at its end."""
    ax.plot(*zip(*way, strict=True), color=style.BLACK, linewidth=0.9)
    how = {"arrowstyle": "-|>", "color": style.BLACK, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", way[-1], way[-2], arrowprops=how)
