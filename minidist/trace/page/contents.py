"""What a page shows of a timeline, as plain data that is small enough for a browser.

    track of a rank    spans      | step 1                           |      levels: in one level nothing overlaps, and
                                  | forward     | backward  | update |      what lies in another is in a later one
                                       | recv |
                       layers     | layers.0 | 1|
                       flights        | all_reduce |

A span is [start, stop, kind, name, step, microbatch, chunk, layer, bytes, peer]: times in ns since the timeline's
start, kind, name and layer as places in lists, and what is unknown at its end left out.
Read next: `template.html`, then `page.js`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from minidist.trace.plot.style import LOOKS, NAMES
from minidist.trace.timeline import FLIGHT, KINDS, Span, Timeline

MOST_RANKS = 64  # that are drawn
MOST_FLOWS = 50_000  # arrows that a page holds
MOST_POINTS = 1000  # of a curve
LEVELS = 4  # of what is in flight at the same time

Levels = list[list[list[Any]]]


def contents(timeline: Timeline, about: dict[str, Any]) -> dict[str, Any]:
    """Give all that a page shows: `about` says what is no part of the timeline (`minidist/train/about.py`)."""
    # Of a simulation only some ranks may have been played.
    ranks = min(1 + max((span.rank for span in timeline.spans), default=0), MOST_RANKS)
    spans = [span for span in timeline.spans if span.rank < ranks]
    names = _Places()
    origin = timeline.start
    of_rank: list[list[Span]] = [[] for _ in range(ranks)]
    for span in spans:
        of_rank[span.rank].append(span)
    curves = {name: thinned(values) for name, values in about.get("curves", {}).items()}
    return {
        **about,
        "ranks": [timeline.ranks, ranks],
        "kinds": [*KINDS, FLIGHT],
        "looks": {kind: [*LOOKS[kind], NAMES.get(kind, kind)] for kind in KINDS},
        "tracks": [_track(own, origin, names) for own in of_rank],
        "names": names.texts,
        "stop": _ns(timeline.stop - origin),
        "steps": steps(spans, origin),
        "flows": _flows(timeline, ranks),
        "sent": timeline.sent[:ranks, :ranks].tolist(),
        "split": {kind: seconds[:ranks].tolist() for kind, seconds in timeline.seconds().items()},
        "curves": curves,
    }


class _Places(dict[str | None, int | None]):
    """Give each text its place in a list."""

    def __init__(self) -> None:
        super().__init__({None: None})
        self.texts: list[str] = []

    def __missing__(self, text: str) -> int:
        self.texts.append(text)
        self[text] = len(self.texts) - 1
        return len(self.texts) - 1


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _track(spans: Iterable[Span], origin: float, names: _Places) -> dict[str, Levels]:
    """Sort one rank's spans into what it does, its layers, and what is in flight."""
    parts: dict[str, list[Span]] = {"spans": [], "layers": [], "flights": []}
    for span in spans:
        computes_layer = span.layer is not None and span.kind in ("forward", "backward", "weights")
        # In a simulation a layer is all there is of a forward.
        if computes_layer and span.name == span.layer:
            parts["layers"].append(span)
        else:
            parts["flights" if span.kind == FLIGHT else "spans"].append(span)
    return {
        "spans": levels(parts["spans"], origin, names),
        "layers": levels(parts["layers"], origin, names)[:1],
        "flights": levels(parts["flights"], origin, names)[:LEVELS],
    }


def levels(spans: Iterable[Span], origin: float, names: _Places) -> Levels:
    """Put each span into the first level that is free when it starts; what lies in another so comes in a later one."""
    found: Levels = []
    kinds = [*KINDS, FLIGHT]
    for span in sorted(spans, key=lambda span: (span.start, -span.stop)):
        row: list[Any] = [_ns(span.start - origin), _ns(span.stop - origin), kinds.index(span.kind)]
        row += [names[span.name], span.step, span.microbatch, span.chunk, names[span.layer]]
        row += [span.bytes, span.peer]
        while row[-1] is None:
            row.pop()
        free = next((level for level in found if level[-1][1] <= row[0]), None)
        if free is None:
            found.append([row])
        else:
            free.append(row)
    return found


def steps(spans: Iterable[Span], origin: float) -> list[list[int]]:
    """Give [number, start, stop] of each step, over all ranks: those that say of which step they are."""
    found: dict[int, tuple[float, float]] = {}
    for span in spans:
        if span.step is not None and span.kind != FLIGHT:
            start, stop = found.get(span.step, (span.start, span.stop))
            found[span.step] = min(start, span.start), max(stop, span.stop)
    return [[step, _ns(start - origin), _ns(stop - origin)] for step, (start, stop) in sorted(found.items())]


def _flows(timeline: Timeline, ranks: int) -> list[list[Any]]:
    """Give [source, dest, sent, received, bytes] of each message, or none where they are too many."""
    flows = [flow for flow in timeline.flows if flow.source < ranks and flow.dest < ranks]
    if len(flows) > MOST_FLOWS:
        return []
    origin = timeline.start
    return [[f.source, f.dest, _ns(f.sent - origin), _ns(f.received - origin), f.bytes] for f in flows]


def thinned(points: Sequence[Sequence[float]]) -> list[list[float]]:
    """Keep of (x, y) points the lowest and the highest of each stretch, so that no peak is lost; and the last."""
    if len(points) <= MOST_POINTS:
        return [list(point) for point in points]
    kept = []
    for stretch in np.array_split(np.array(points, float), MOST_POINTS // 2):
        ends = sorted({int(stretch[:, 1].argmin()), int(stretch[:, 1].argmax())})
        kept += stretch[ends].tolist()
    return [*kept, list(points[-1])]
