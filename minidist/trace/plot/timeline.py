"""Draw a timeline: one row per rank, one box per thing it did, the microbatch's number in the box.

    rank 0  |0|1|2|3|       |/0/|/1/|/2/|/3/|     a colour and a hatching for each kind: either alone is enough

Read next: `minidist/trace/timeline.py`, the data that is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minidist.trace.plot import style
from minidist.trace.plot.style import LOOKS
from minidist.trace.timeline import FLIGHT, Timeline


def timeline(runs: Timeline | Sequence[Timeline]) -> Any:
    """Draw one run, or several below each other on one scale of time, and give the matplotlib figure."""
    several = [runs] if isinstance(runs, Timeline) else list(runs)
    height = sum(1.2 + 0.4 * run.ranks for run in several)
    figure = style.figure(height)
    all_axes = figure.subplots(len(several), squeeze=False, sharex=True)[:, 0]
    used: dict[str, Any] = {}
    for run, axes in zip(several, all_axes, strict=True):
        used |= _rows(axes, run)
    all_axes[0].set_xlim(0, max(run.stop - run.start for run in several) * 1e3 or 1)
    all_axes[-1].set_xlabel("milliseconds", fontsize=style.TEXT)
    kinds = [kind for kind in LOOKS if kind in used]
    figure.legend(
        [used[kind] for kind in kinds],
        kinds,
        loc="outside lower center",
        ncols=4,
        fontsize=style.TEXT,
        frameon=False,
    )
    return figure


def _rows(axes: Any, run: Timeline) -> dict[str, Any]:
    """Draw the boxes of one run, outer ones first, so that what lies in them is seen; give one of each kind."""
    used: dict[str, Any] = {}
    whole = run.stop - run.start or 1.0
    for span in sorted(run.spans, key=lambda span: (span.start, -span.stop)):
        if span.kind == FLIGHT:
            continue
        colour, hatch = LOOKS[span.kind]
        left, width = (span.start - run.start) * 1e3, (span.stop - span.start) * 1e3
        used[span.kind] = axes.barh(
            span.rank,
            width,
            left=left,
            height=0.8,
            color=colour,
            hatch=hatch,
            edgecolor="black",
            linewidth=0.5,
        )
        if span.microbatch is not None and (span.stop - span.start) / whole > 0.02:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8} if hatch else None
            axes.text(
                left + width / 2,
                span.rank,
                str(span.microbatch),
                fontsize=style.TEXT,
                ha="center",
                va="center",
                bbox=box,
            )
    name = run.facts.get("schedule") or ""
    axes.set_title(
        f"{name}  bubble: {run.bubble().mean():.0%} of the ranks' time".strip(), fontsize=11, loc="left"
    )
    axes.set_yticks(range(run.ranks), [f"rank {rank}" for rank in range(run.ranks)], fontsize=style.TEXT)
    axes.set_ylim(run.ranks - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=style.TEXT)
    return used
