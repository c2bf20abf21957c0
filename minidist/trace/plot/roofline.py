"""Draw how near each layer comes to what the processor allows, under its two roofs: arithmetic, and memory.

    log rate |          ____________  peak: arithmetic is the limit
             |        /    x
             |      /   o      a layer: its operations per second, over its operations per byte
             |    /
             +--------------------------- log operations per byte

Williams, Waterman & Patterson, "Roofline: An Insightful Visual Performance Model", CACM 2009. Read next:
`minidist/plan/operations.py`, which counts, and `minidist/bench/roofline.py`, the same for single kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.trace.plot import rows, style
from minidist.trace.processor import Processor
from minidist.trace.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def roofline(runs: Timeline | Sequence[Timeline], ax: Axes | None = None) -> Any:
    """Draw the forward of rank 0's layers, of one run or of several to compare; give the matplotlib figure.

    The runs' facts have "work": {layer: (operations, bytes) of its forwards in a step}, and may have "roof":
    (operations, bytes) a second that the processor can do; else that is measured now, on this one, which takes about
    a second. A layer is as fast as in its recorded step of median length: in a shorter one it may have had fewer
    examples.
    """
    several = style.several(runs)
    place = style.axes_in(ax, 3.6)
    from matplotlib.ticker import FuncFormatter, NullFormatter

    points = {number: points_of(run) for number, run in enumerate(several)}
    if not any(points.values()):
        style.letter(place, "roofline")
        style.empty(place, "of this run no layer's operations are known")
        return place.figure
    facts = several[0].facts
    peak, bandwidth = facts.get("roof") or Processor().roof(facts.get("dtype", "float32"))
    known = [intensity for found in points.values() for _, intensity, _ in found]
    reach = np.geomspace(min(*known, peak / bandwidth) / 4, max(*known, peak / bandwidth) * 4, 200)
    place.plot(reach, np.minimum(peak, reach * bandwidth) / 1e9, color=style.BLACK)
    for number, found in points.items():
        for order, (name, intensity, rate) in enumerate(found):
            place.plot(
                intensity,
                rate / 1e9,
                style.MARKERS[order % len(style.MARKERS)],
                color=style.CYCLE[number % len(style.CYCLE)],
                markersize=8,
                label=name if len(several) == 1 else f"{rows.name_of(several[number])}: {name}",
            )
    place.set(xscale="log", yscale="log")
    for axis in (place.xaxis, place.yaxis):  # whole powers of ten at the ends, and plain numbers
        low, high = axis.get_view_interval()
        axis.set_view_interval(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high)), ignore=True)
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    roof = f"{peak / 1e9:,.0f} billion operations, {bandwidth / 1e9:,.0f} GB a second"
    style.letter(
        place, f"layers forward, under the roof: {roof}", "operations per byte", "billion operations a second"
    )
    style.legend_below(place, *place.get_legend_handles_labels())
    return place.figure


def points_of(run: Timeline) -> list[tuple[str, float, float]]:
    """Give (name, operations per byte, operations per second) of each layer of rank 0 that is known and was seen."""
    found = []
    for name, (operations, nbytes) in run.facts.get("work", {}).items():
        took: dict[int | None, float] = {}
        for span in run.spans:
            if span.rank == 0 and span.kind == "forward" and name in (span.layer, span.name):
                took[span.step] = took.get(span.step, 0.0) + span.stop - span.start
        if operations and took:
            found.append((name, operations / nbytes, operations / sorted(took.values())[len(took) // 2]))
    return found
