"""Draw who sent how much to whom: a row for each sender, a column for each receiver.

             to  0    1    2
    from 0       .   1.2  0.1
         1      1.2   .   0.1       one unit for all numbers, the darker the more

Read next: `minidist/trace/messages.py`, which counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.trace.plot import rows, style
from minidist.trace.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELLS = 64  # along a side, at most about twice that: of more ranks, several share a cell
MOST_NUMBERS = 32  # ranks whose numbers are written, if they have room


def bytes_matrix(runs: Timeline | Sequence[Timeline], ax: Axes | None = None) -> Any:
    """Draw the bytes from each rank to each other one, and give the matplotlib figure.

    Several runs stand side by side, with one scale; ax: where to draw, of one run alone.
    """
    several = style.several(runs)
    if ax is None:
        side = style.WIDTH / max(len(several), 1)
        figure = style.figure(min(side, 5.2) + 0.4, style.WIDTH)
        places = figure.subplots(1, len(several), squeeze=False)[0]
    else:
        figure, places = ax.figure, [ax]
    if len(places) != len(several):
        raise ValueError(f"ax is one place to draw in, but there are {len(several)} runs; leave ax out")
    most = max(int(run.sent.max(initial=0)) for run in several)
    size, unit = style.bytes_unit(most)
    for run, place in zip(several, places, strict=True):
        block = max(1, run.ranks // CELLS)
        sent = largest(run.sent, block) / size
        sent[sent == 0] = np.nan  # what was not sent is left white
        end = len(sent) * block - 0.5
        extent = (-0.5, end, end, -0.5)
        image = place.imshow(sent, cmap="Blues", vmin=0, vmax=max(1.15 * most / size, 1e-12), extent=extent)
        of = f" (the most in {block} x {block} ranks)" if block > 1 else ""
        title = f"{rows.name_of(run)}\n{unit} sent" if len(several) > 1 else f"{unit} sent{of}"
        style.letter(place, title, "to rank", "from rank")
        if run.ranks <= MOST_NUMBERS:
            place.set_xticks(range(run.ranks))
            place.set_yticks(range(run.ranks))
            for line in range(1, run.ranks):
                place.axhline(line - 0.5, color=style.PALE, linewidth=0.8)
                place.axvline(line - 0.5, color=style.PALE, linewidth=0.8)
    figure.figure.draw_without_rendering()  # so that it is known how much room there is
    written = [
        write_numbers(place, run.sent / size, most / size) for run, place in zip(several, places, strict=True)
    ]
    if not all(written):
        bar = figure.colorbar(image, ax=list(places), label=unit, shrink=0.8)
        bar.ax.tick_params(labelsize=style.TEXT)
        bar.ax.yaxis.label.set_size(style.TEXT)
    return figure


def write_numbers(ax: Axes, sent: np.ndarray, most: float) -> bool:
    """Write each number into its cell, if there is room for all; say whether there was."""
    ranks = len(sent)
    texts = {(s, d): number(sent[s, d]) for s in range(ranks) for d in range(ranks) if sent[s, d]}
    cell = ax.get_window_extent().width / ax.figure.dpi * 72 / ranks
    room = cell / (0.64 * style.TEXT)  # letters
    if ranks > MOST_NUMBERS or max(map(len, texts.values()), default=0) > room:
        thin_ticks(ax, ranks)
        return False
    for (source, dest), text in texts.items():
        dark = sent[source, dest] > 0.5 * most
        ax.text(
            dest,
            source,
            text,
            fontsize=style.TEXT,
            ha="center",
            va="center",
            color="white" if dark else "black",
        )
    return True


def largest(sent: np.ndarray, block: int) -> np.ndarray:
    """Give the largest number of each block of so many ranks: a line of single ones would be too thin to see."""
    ranks = len(sent)
    cells = -(-ranks // block)
    padded = np.zeros((cells * block, cells * block))
    padded[:ranks, :ranks] = sent
    return padded.reshape(cells, block, cells, block).max(axis=(1, 3))


def thin_ticks(ax: Axes, ranks: int) -> None:
    """Write every so manieth rank beside the axes."""
    every = max(1, 2 ** int(np.ceil(np.log2(ranks / 4))))
    ax.set_xticks(range(0, ranks, every))
    ax.set_yticks(range(0, ranks, every))


def number(value: float) -> str:
    """Write with two or three digits that count."""
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 0.095 else f"{value:.2f}" if value >= 0.005 else "~0"
