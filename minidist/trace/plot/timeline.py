"""Draw a timeline: one row per rank, one box per thing it did, the microbatch's number in the box.

    rank 0  |0|1|2|3|       |/0/|/1/|/2/|/3/|     a colour and a hatching for each kind: either alone is enough

One step is drawn, of median length, unless `step` says another. Read next: `minidist/trace/timeline.py`, the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minidist.trace.plot import rows, style
from minidist.trace.timeline import Flow, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ARROWS = 64
BOX, STRIP = 0.84, 0.3  # parts of a row's height
EDGED = 0.004  # of the width: narrower boxes would be nothing but edge
SEEN = 0.002  # of the width: what is narrower need not be explained
DIGIT = 0.64  # of the size of the text: as wide as a digit is


def timeline(runs: Timeline | Sequence[Timeline], ax: Axes | None = None, step: int | None = None) -> Any:
    """Draw one run, or several below each other on one scale of time, and give the matplotlib figure.

    ax: where to draw, of one run alone. step: which; None chooses.
    """
    several = style.several(runs)
    cuts = [cut(run, step) for run in several]
    ranks = [rows.shown_ranks(run) for run in cuts]
    if ax is None:
        heights = [0.9 + (0.32 if len(shown) <= 8 else 0.2) * len(shown) for shown in ranks]
        figure = style.figure(sum(heights) + 0.6)
        axes = figure.subplots(len(cuts), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    else:
        figure, axes = ax.figure, [ax]
    if len(axes) != len(cuts):
        raise ValueError(
            f"ax is one place to draw in, but there are {len(cuts)} runs; leave ax out, or give one run"
        )
    longest = max(run.stop - run.start for run in cuts) or 1.0
    size, unit = scale(cuts[0], longest)
    used: dict[Any, Any] = {}
    for run, shown, place in zip(cuts, ranks, axes, strict=True):
        place.set_xlim(0, longest / size)
        place.set_ylim(len(shown) - 0.5, -0.5)
        place.set_yticks(range(len(shown)), [f"rank {rank}" for rank in shown])
        style.letter(place, title(run, shown), unit if place is axes[-1] else "")
        used |= draw_rows(place, run, shown, size)
        draw_flows(place, run, shown, size)
    order = {kind: number for number, kind in enumerate(style.LOOKS)}
    labels = sorted(used, key=lambda key: (order[key[0]], key[1]))
    style.legend_below(axes[-1], [used[key] for key in labels], [label(key) for key in labels])
    figure.figure.draw_without_rendering()  # so that it is known how much room there is
    for run, shown, place in zip(cuts, ranks, axes, strict=True):
        if rows.has_microbatches(run):
            number_boxes(place, run, shown, size)
    return figure


def cut(run: Timeline, step: int | None) -> Timeline:
    """Cut out the step that is drawn; a run whose spans name no steps is drawn whole."""
    step = rows.typical_step(run) if step is None else step
    if step is None:
        return run
    found = rows.of_step(run, step)
    found.facts = {
        **run.facts,
        "drawn": f"step {step} of {run.facts.get('of_steps', max(rows.steps_of(run)))}",
    }
    return found


def title(run: Timeline, shown: list[int]) -> str:
    """Say what it is, and how much of the time nothing is computed."""
    about = f", {len(shown)} of {run.ranks:,} ranks" if len(shown) < run.ranks else ""
    words = ""
    if rows.has_microbatches(run):
        words = f", at most {rows.most_waiting(run)} forwards wait for their backward"
    return f"{rows.name_of(run)}{about}: bubble {run.bubble()[shown].mean():.0%}{words}"


def scale(run: Timeline, longest: float) -> tuple[float, str]:
    """Give seconds in a unit of the axis, and what is written there."""
    if "unit" in run.facts:
        return 1.0, run.facts["unit"]
    size, unit = style.time_unit(longest)
    source = "simulated" if run.facts.get("simulated") else run.facts.get("drawn", "")
    note = run.facts.get("note")
    about = ", ".join(filter(None, (source, note)))
    return size, f"{unit} ({about})" if about else unit


def label(key: tuple[str, int]) -> str:
    """Name a kind, and of later stages of a rank which."""
    kind, chunk = key
    return style.NAMES.get(kind, kind) + (f", stage {chunk + 1} of this rank" if chunk else "")


def draw_rows(ax: Axes, run: Timeline, shown: list[int], size: float) -> dict[Any, Any]:
    """Draw the boxes of each rank; give one artist of each look."""
    import matplotlib.patches as patches
    from matplotlib.collections import PatchCollection

    chunks, spans = rows.chunks_of(run), run.of_ranks()
    found: dict[tuple[str, int, int], list[Any]] = {}  # by kind, chunk, and what lies above what
    for row, rank in enumerate(shown):
        found.setdefault(("idle", 0, 1), []).append(
            patches.Rectangle((0, row - BOX / 2), (run.stop - run.start) / size, BOX)
        )
        for boxes, bottom, height in zip(
            rows.boxes(spans[rank]), (BOX / 2, BOX / 2), (BOX, STRIP), strict=True
        ):
            for box in boxes:
                if box.kind != "idle" or height == STRIP:
                    key = box.kind, box.chunk or 0, 3 if height == STRIP else 2
                    corner = (box.start - run.start) / size, row + bottom - height
                    found.setdefault(key, []).append(
                        patches.Rectangle(corner, (box.stop - box.start) / size, height)
                    )
    used = {}
    whole = (run.stop - run.start) / size
    for (kind, chunk, order), shapes in found.items():
        colour, hatch = style.LOOKS[kind]
        look: dict[str, Any] = {
            "facecolor": style.lighter(colour, chunk / chunks),
            "hatch": hatch,
            "edgecolor": style.BLACK,
        }
        thick = [0.5 * (kind in rows.BOXED and shape.get_width() > EDGED * whole) for shape in shapes]
        ax.add_collection(PatchCollection(shapes, **look, linewidth=thick, zorder=order), autolim=False)
        if max(shape.get_width() for shape in shapes) > SEEN * whole:
            used[kind, chunk] = patches.Patch(**look, linewidth=max(thick))
    return used


def number_boxes(ax: Axes, run: Timeline, shown: list[int], size: float) -> None:
    """Write the microbatch into each box that has room for it."""
    points = ax.get_window_extent().width / ax.figure.dpi * 72 / (ax.get_xlim()[1] - ax.get_xlim()[0])
    spans = run.of_ranks()
    for row, rank in enumerate(shown):
        for box in rows.boxes(spans[rank])[0]:
            if box.microbatch is None:
                continue
            text, width = str(box.microbatch), (box.stop - box.start) / size
            if width * points < len(text) * DIGIT * style.TEXT + 0.5:
                continue
            hatched = style.LOOKS[box.kind][1]
            back = {
                "facecolor": style.lighter(style.LOOKS[box.kind][0], 0.75),
                "edgecolor": "none",
                "pad": 0.6,
            }
            middle = (box.start - run.start) / size + width / 2
            ax.text(
                middle,
                row,
                text,
                fontsize=style.TEXT,
                ha="center",
                va="center",
                bbox=back if hatched else None,
                zorder=4,
            )


def draw_flows(ax: Axes, run: Timeline, shown: list[int], size: float) -> None:
    """Draw an arrow from each send to its receive, if there are few."""
    places = {rank: row for row, rank in enumerate(shown)}
    flows: list[Flow] = [flow for flow in run.flows if flow.name not in ("control", "guard", "loss")]
    if len(flows) > MOST_ARROWS:
        return
    for flow in flows:
        if flow.source in places and flow.dest in places:
            source, dest = places[flow.source], places[flow.dest]
            down = BOX / 2 if dest > source else -BOX / 2
            ax.annotate(
                "",
                ((flow.received - run.start) / size, dest - down),
                ((flow.sent - run.start) / size, source + down),
                arrowprops={
                    "arrowstyle": "-|>,head_width=0.12,head_length=0.2",
                    "lw": 0.6,
                    "shrinkA": 0,
                    "shrinkB": 0,
                },
                zorder=3,
            )
