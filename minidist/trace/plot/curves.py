"""Draw losses and test accuracies over the steps, of one run or of several that are compared.

Read next: `minidist/train/history.py`, where a loss comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.trace.plot import rows, style
from minidist.trace.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONG = 60  # steps: more are also drawn as a mean over a twentieth of them


def curves(runs: Timeline | Sequence[Timeline], ax: Axes | None = None) -> Any:
    """Draw the loss of each step, and the accuracy where it was looked at; give the matplotlib figure.

    The runs' facts have "losses", and may have "accuracy", at the end, and "accuracies": (step, accuracy) on the way.
    """
    several = style.several(runs)
    place = style.axes_in(ax, 3.2)
    most = max((len(run.facts.get("losses", ())) for run in several), default=0)
    for number, run in enumerate(several):
        losses = np.array(run.facts.get("losses", ()), float)
        if not losses.size:
            continue
        colour, dashes = style.CYCLE[number % len(style.CYCLE)], style.DASHES[number % len(style.DASHES)]
        steps = np.arange(1, losses.size + 1)
        if losses.size > LONG:
            place.plot(steps, losses, color=colour, alpha=0.25, linewidth=0.8)
            window = losses.size // 20
            losses = np.convolve(losses, np.full(window, 1 / window), "valid")
            steps = steps[window - 1 :]
        marker = style.MARKERS[number % len(style.MARKERS)]
        place.plot(
            steps,
            losses,
            dashes,
            color=colour,
            label=rows.name_of(run) + ending(run),
            marker=marker,
            markersize=4,
            markevery=0.2,
        )
    if any(len(run.facts.get("accuracies", ())) > 1 for run in several):
        accuracies(several, place)
    title = f"loss, and its mean over {most // 20} steps" if most > LONG else "loss of each step"
    style.letter(place, title if len(several) > 1 else f"{title}{ending(several[0])}", "step")
    if most and len(several) > 1:
        style.legend_below(place, *place.get_legend_handles_labels())
    elif not most:
        style.empty(place, "no losses are known of this run")
    return place.figure


def accuracies(runs: Sequence[Timeline], place: Axes) -> None:
    """Draw accuracies beside losses, dotted, against an axis on the right."""
    from matplotlib.ticker import PercentFormatter

    right = place.twinx()
    for number, run in enumerate(runs):
        if points := run.facts.get("accuracies", ()):
            marker, colour = (
                style.MARKERS[number % len(style.MARKERS)],
                style.CYCLE[number % len(style.CYCLE)],
            )
            right.plot(
                *zip(*points, strict=True), ":", color=colour, marker=marker, markersize=4, fillstyle="none"
            )
    right.set_ylim(0, 1)
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    right.set_ylabel("test accuracy (dotted)", fontsize=style.TEXT)
    right.tick_params(labelsize=style.TEXT)
    right.spines["top"].set_visible(False)


def ending(run: Timeline) -> str:
    """Say how well it ended, if that is known."""
    accuracy = run.facts.get("accuracy")
    return "" if accuracy is None else f", test accuracy {accuracy:.1%}"
