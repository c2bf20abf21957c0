"""Draw how long ways of an all-reduce take, from short messages to long ones, and where the fastest one changes.

    seconds |  ring ______________/        few steps win for short vectors, few bytes for long ones
            |  tree ______/
            +------|---------------- bytes

Read next: `minidist/plan/cost.py`, the formulas, and `minidist/comm/all_reduce.py`, the ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.trace.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAYS = ("ring", "tree", "naive")
SIZES = [2**power for power in range(3, 29)]  # bytes


def ring_or_tree(
    seconds: Callable[[int, str], float],
    ways: Sequence[str] = WAYS,
    measured: Mapping[str, Sequence[tuple[int, float]]] | None = None,
    title: str = "All-reduce",
    ax: Axes | None = None,
) -> Any:
    """Draw seconds(nbytes, way) from 8 bytes to 256 MB, and measured points beside it; give the figure.

    measured: for some of the ways, (bytes, seconds) of each point. With `cost.all_reduce` of `minidist.plan`:

        ring_or_tree(lambda nbytes, way: cost.all_reduce(nbytes // 8, 8, ranks, link, way))
    """
    from matplotlib.ticker import FuncFormatter

    measured = measured or {}
    ax = style.axes_in(ax, 3.9)
    times = {way: np.array([seconds(size, way) for size in SIZES]) for way in ways}
    looks = {way: n for n, way in enumerate(dict.fromkeys([*ways, *measured]))}
    for way, line in times.items():
        n = looks[way]
        ax.plot(SIZES, line, color=style.CYCLE[n % 8], linestyle=style.DASHES[n % 4], linewidth=2, label=way)
    for way, points in measured.items():
        n = looks[way]
        marker, colour = style.MARKERS[n % 8], style.CYCLE[n % 8]
        ax.plot(*zip(*points, strict=True), marker, color=colour, label=f"{way}, measured", markersize=6)
    ax.set_xscale("log")
    if any((line > 0).any() for line in times.values()) or measured:
        ax.set_yscale("log")
    else:  # one rank
        ax.set_yticks([0])
    changes = crossings(SIZES, times)
    for size, *_ in changes:
        ax.axvline(size, color=style.GREY, linestyle=":", linewidth=1.5)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda size, _: words_of(size, ("bytes", "kB", "MB", "GB"))))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda time, _: words_of(time * 1e6, ("us", "ms", "s", "ks"))))
    said = "; ".join(
        f"from {words_of(size, ('bytes', 'kB', 'MB', 'GB'))} on {after}" for size, _, after in changes
    )
    first = min(times, key=lambda way: times[way][0])
    style.letter(
        ax,
        f"{title}. The fastest: {first}{'; ' + said if said else ', at every size'}",
        "size of the vector",
        "time",
    )
    ax.minorticks_off()
    ax.legend(fontsize=style.TEXT, frameon=False, loc="upper left")
    return ax.get_figure(root=True)


def crossings(sizes: Sequence[int], times: Mapping[str, np.ndarray]) -> list[tuple[float, str, str]]:
    """Say where the fastest way changes: (bytes, the one before, the one after), between two sizes by their slopes."""
    found = []
    fastest = [min(times, key=lambda way: times[way][n]) for n in range(len(sizes))]
    for n in range(1, len(sizes)):
        old, new = fastest[n - 1], fastest[n]
        if old != new:
            ahead = times[new][n - 1] - times[old][n - 1]  # how much the old one is better before
            behind = times[old][n] - times[new][n]
            part = ahead / (ahead + behind) if ahead + behind > 0 else 1.0
            found.append((sizes[n - 1] + part * (sizes[n] - sizes[n - 1]), old, new))
    return found


def words_of(number: float, units: Sequence[str]) -> str:
    """Write a number with two or three digits and the unit that fits; each unit is 1000 of the one before."""
    place = 0
    while number >= 999.5 and place < len(units) - 1:
        number, place = number / 1000, place + 1
    return f"{number:.3g} {units[place]}"
