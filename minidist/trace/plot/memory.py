"""Draw how much memory each rank has over time.

A real run tells the memory of the process, of which Python and NumPy are some 40 MB; a simulated one what the rank
holds: weights, gradients, the optimizer's vectors, and what waits for its backward.
Read next: `minidist/plan/memory.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.trace.plot import rows, style
from minidist.trace.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMED = 8  # ranks with a colour of their own


def memory(runs: Timeline | Sequence[Timeline], ax: Axes | None = None) -> Any:
    """Draw a line for each rank, from when to when it held how much, and give the matplotlib figure.

    Several runs stand below each other, on one scale; ax: where to draw, of one run alone.
    """
    several = style.several(runs)
    if ax is None:
        figure = style.figure(2.2 * len(several) + 1)
        places = figure.subplots(len(several), squeeze=False, sharex=True, sharey=True)[:, 0]
    else:
        figure, places = ax.figure, [ax]
    if len(places) != len(several):
        raise ValueError(f"ax is one place to draw in, but there are {len(several)} runs; leave ax out")
    most = max((nbytes for run in several for points in run.memory for _, nbytes in points), default=0)
    size, unit = style.bytes_unit(most)
    second, seconds = style.time_unit(max(run.stop - run.start for run in several))
    for run, place in zip(several, places, strict=True):
        simulated = run.facts.get("simulated")
        what = "what each rank holds" if simulated else "memory of each process"
        title = f"{rows.name_of(run)}: {what}" if len(several) > 1 else what
        style.letter(place, title, seconds if place is places[-1] else "", unit)
        if any(run.memory):
            draw_lines(place, run, size, second)
        else:
            style.empty(place, "no memory is known of this run")
    if most:
        places[0].set_ylim(0, 1.08 * most / size)
        places[0].set_xlim(0, max(run.stop - run.start for run in several) / second or 1)
    handles = places[0].get_legend_handles_labels()
    if handles[0]:
        style.legend_below(places[-1], *handles)
    return figure


def draw_lines(ax: Axes, run: Timeline, size: float, second: float) -> None:
    """Draw the lines of the ranks that are shown: named ones, or all in shades, the first the darkest."""
    shown = [rank for rank in rows.shown_ranks(run) if run.memory[rank]]
    for number, rank in enumerate(shown):
        times, held = np.array(run.memory[rank], float).T
        times = np.append(np.maximum(times - run.start, 0), run.stop - run.start) / second
        named = len(shown) <= MOST_NAMED
        colour = style.CYCLE[number] if named else style.lighter(style.BLUE, 0.8 * number / len(shown))
        label = f"rank {rank}" if named or number in (0, len(shown) - 1) else None
        ax.plot(
            times,
            np.append(held, held[-1]) / size,
            style.DASHES[number % 4] if named else "-",
            color=colour,
            label=label,
            drawstyle="steps-post",
            linewidth=1.6,
        )
