"""Draw a weight that is cut over ranks, what goes in and what comes out, and what is sent for it.

    by columns    x (n, k)  @  [A0|A1]  =  [y0|y1]          x is the same on both, each makes some columns of y
    by rows       [x0|x1]   @  [B0]     =  y0 + y1          each makes a partial sum of all of y
                               [B1]

Read next: `minidist/split/tensor_layers.py`, the layers, and `minidist/comm/on_tape.py`, the collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minidist.errors import UserError
from minidist.nn import Placement
from minidist.trace.plot import style
from minidist.trace.plot.boxes import EDGE, LINE, box, canvas, legend, rows_of, short, write

SENT = {  # (dim, whether the stream is in pieces along time): in forward, in backward
    (1, False): ("nothing, for x is the same on all ranks", "all-reduce of the gradient of x"),
    (0, False): ("all-reduce of the partial sums", "nothing, for the gradient of y is the same on all ranks"),
    (1, True): ("all-gather of x, of which each rank has a piece", "reduce-scatter of the gradient of x"),
    (0, True): ("reduce-scatter of the partial sums", "all-gather of the gradient of y"),
}
LONG, SHORT = 2.0, 0.45  # inches of the longest side of a matrix, and of the shortest


def cut_weight(parts: Any, name: str = "W") -> Any:
    """Draw one weight from what its ranks hold of it.

    parts: each rank's layer (anything with a `weight` that has a placement), in rank order, or each rank's Placement;
    or one alone: then what the others hold is left white. Without ranks: `[Placement((4, 6), 1, indices) for indices
    in shares(6, 2)]` cuts 6 columns for 2. Raises UserError for a weight that is not cut.
    """
    several = list(parts) if isinstance(parts, Sequence) else [parts]
    held = [part if isinstance(part, Placement) else part.weight.placement for part in several]
    if any(part is None or part.dim is None for part in held):
        raise UserError("this weight is not cut: every rank holds all of it, so there is nothing to draw")
    if len(held[0].shape) != 2 or held[0].dim not in (0, 1):
        raise UserError(f"only matrices can be drawn, and this weight has shape {held[0].shape}")
    stream = getattr(several[0], "stream", None)
    first = stream.comm.rank if stream is not None and len(several) == 1 else 0
    (k, m), dim = held[0].shape, held[0].dim
    runs = [_runs(np.asarray(part.indices)) for part in held]
    high, wide = _side(k, max(k, m)), _side(m, max(k, m))
    names = [f"rank {first + rank}" for rank in range(len(held))]
    copies = min(len(held), 4)
    bottom = 0.85 + max(high, 1.2)
    figure, ax = canvas(
        bottom + 0.85 + 0.25 * rows_of(names),
        f"{short(name, 4)} ({k:,}, {m:,}) is cut by {'columns' if dim else 'rows'}",
    )
    middle = 0.8 + max(high, 1.2) / 2
    tall = 0.7  # of x and y: as many rows as there are examples

    def matrix(x: float, width: float, height: float, along: int | None, n: int, text: str) -> None:
        box(ax, x, middle - height / 2, width, height, facecolor=style.PALE if along is None else "white")
        for rank, of_rank in enumerate(runs if along is not None else []):
            for start, stop in of_rank:
                here, size = start / n, (stop - start) / n
                at = (
                    (x + here * width, middle - height / 2)
                    if along
                    else (x, middle - height / 2 + here * height)
                )
                sides = (size * width, height) if along else (width, size * height)
                box(ax, *at, *sides, str(first + rank), first + rank)
        write(ax, x + width / 2, middle - height / 2 - 0.14, text, ha="center")

    x = EDGE + 0.2
    matrix(x, high, tall, None if dim else 1, k, f"x (…, {k:,})")
    x += max(high, 0.9) + 0.2
    write(ax, x, middle, "@", ha="center")
    x += 0.2
    matrix(x, wide, high, dim, (k, m)[dim], f"W ({k:,}, {m:,})")
    x += max(wide, 0.9) + 0.2
    write(ax, x, middle, "=", ha="center")
    x += 0.2
    if dim:
        matrix(x, wide, tall, 1, m, f"y (…, {m:,})")
    else:
        for rank in reversed(range(copies)):
            more = 0.13 * rank
            box(ax, x + more, middle - tall / 2 + more, wide, tall, "" if rank else "sum", first + rank)
        write(ax, x + wide / 2, middle - tall / 2 - 0.14, f"y (…, {m:,}), a sum over ranks", ha="center")
    forward, backward = SENT[dim, bool(stream is not None and stream.partial)]
    write(ax, EDGE, bottom + 0.1, f"sent in forward:   {forward}")
    write(ax, EDGE, bottom + 0.1 + LINE, f"sent in backward: {backward}")
    legend(ax, bottom + 0.2 + 2 * LINE, names, first)
    return figure


def _side(n: int, longest: int) -> float:
    """Give the inches of a side of n numbers: in proportion, as far as it can still be seen."""
    return max(SHORT, LONG * n / longest)


def _runs(indices: np.ndarray) -> list[tuple[int, int]]:
    """Give (start, stop) of each stretch of neighbours."""
    if not len(indices):
        return []
    pieces = np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1)
    return [(int(piece[0]), int(piece[-1]) + 1) for piece in pieces]
