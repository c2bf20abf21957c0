"""Draw what each rank spent its time on: a bar per rank, a piece for each kind.

    rank 0   |forward |//backward//|update|  idle  |

Read next: `minidist/trace/timeline.py`, which adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.trace.plot import rows, style
from minidist.trace.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def time_split(runs: Timeline | Sequence[Timeline], ax: Axes | None = None) -> Any:
    """Draw the seconds of a step by kind, stacked, for each rank; of several runs below each other.

    Gives the matplotlib figure. Time in which nothing is known of a rank counts as idle.
    """
    several = style.several(runs)
    ranks = [rows.shown_ranks(run) for run in several]
    lines = sum(map(len, ranks)) + len(several) - 1
    place = style.axes_in(ax, 1.2 + (0.3 if lines <= 10 else 0.19) * lines)
    split = [per_step(run) for run in several]
    longest = max(
        float(np.sum(list(kinds.values()), axis=0)[shown].max(initial=0.0))
        for kinds, shown in zip(split, ranks, strict=True)
    )
    size, unit = style.time_unit(longest)
    ticks: dict[int, str] = {}
    first, used = 0, {}
    for run, shown, kinds in zip(several, ranks, split, strict=True):
        at = np.arange(first, first + len(shown))
        left = np.zeros(len(shown))
        for kind, (colour, hatch) in style.LOOKS.items():
            if kind in kinds:
                width = kinds[kind][shown] / size
                used[kind] = place.barh(
                    at, width, 0.8, left, color=colour, hatch=hatch, edgecolor="black", linewidth=0.5
                )
                left += width
        ticks |= {int(row): f"rank {rank}" for row, rank in zip(at, shown, strict=True)}
        if len(several) > 1:
            place.text(0, first - 0.5, rows.name_of(run), fontsize=style.TEXT, weight="bold", va="bottom")
        first += len(shown) + 1
    place.set_yticks(list(ticks), list(ticks.values()))
    place.set_ylim(first - 1.5, -0.5 - (len(several) > 1))
    per = run.facts.get("unit", f"{unit} a step")
    few = any(len(shown) < run.ranks for run, shown in zip(several, ranks, strict=True))
    style.letter(place, "time of a step" + (", some of the ranks" if few else ""), per)
    handles = {kind: used[kind] for kind in style.LOOKS if kind in used}
    style.legend_below(
        place,
        list(handles.values()),
        [style.NAMES.get(kind, kind) for kind in handles],
    )
    return place.figure


def per_step(run: Timeline) -> dict[str, np.ndarray]:
    """Give the seconds of each kind in a step, in the mean; what is left of the time is idle."""
    steps = run.facts.get("steps", 1)
    count = steps[1] - steps[0] + 1 if isinstance(steps, list) else steps
    found = {kind: seconds / count for kind, seconds in run.seconds().items()}
    rest = (run.stop - run.start) / count - sum(found.values())
    found["idle"] = found.get("idle", np.zeros(run.ranks)) + np.maximum(rest, 0)
    return found
