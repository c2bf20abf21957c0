"""Draw which rank reads which rows: a line for each global batch, a box for each of its rows.

    step 0   |7|2|9|0|4|        the number of the row in the data set; colour and hatching say whose it is
    step 1   |1|8|5|3|6|

Read next: `minidist/data/loader.py`, which is asked.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from minidist.data import loader
from minidist.trace.plot import style
from minidist.trace.plot.boxes import EDGE, box, canvas, legend, rows_of, write

MOST = 16  # batches that are drawn


def who_read(
    n: int, batch: int, ranks: int, seed: int = 0, epoch: int = 0, cut: loader.Cut = loader.share
) -> Any:
    """Draw who reads what in an epoch of n rows, as `loader.read` with these arguments says."""
    read = [loader.read(n, batch, seed, epoch, rank, ranks, cut) for rank in range(ranks)]
    steps = list(islice(zip(*read, strict=True), MOST))
    all_steps = -(-n // batch)
    names = [f"rank {rank}" for rank in range(ranks)]
    top, line = 0.75, 0.28
    figure, ax = canvas(
        top + line * len(steps) + 0.15 + 0.25 * rows_of(names),
        f"Which rank reads which rows: {n:,} rows, batches of {batch:,}",
    )
    shown = "" if all_steps <= MOST else f"; the first {MOST} of {all_steps:,} batches"
    width = min(0.42, (style.WIDTH - 1.0 - EDGE) / max(1, min(batch, n)))
    single = width >= 0.085 * len(str(n - 1)) + 0.06  # else its number would not fit into a row's box
    boxes = "a box is a row, with its number" if single else "a box is what a rank reads, with how many rows"
    write(ax, EDGE, 0.52, f"epoch {epoch}, seed {seed}: {boxes}{shown}")
    for step, of_ranks in enumerate(steps):
        y, x = top + step * line, 1.0
        write(ax, EDGE, y + line / 2, f"step {step}")
        for rank, (rows, _) in enumerate(of_ranks):
            texts = [str(row) for row in rows.tolist()] if single else [str(len(rows))]
            wide = width if single else width * len(rows)
            for text in texts:
                box(ax, x, y, wide, line - 0.04, text, rank)
                x += wide
    legend(ax, top + line * len(steps) + 0.12, names)
    return figure
