"""What of a run is drawn: which step, which ranks, and which boxes in a rank's row. Plain data, no matplotlib.

    spans      step [ forward [layer 0][layer 1 [all_reduce]] ][send][ ... [idle] ]
    boxes      [ forward 0            ][c][  idle   ]       the outermost computation; what happens between, innermost
    strips                  [c]                             communication and waiting inside a computation

Read next: `timeline.py`, which draws them.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import Any

from minidist.trace.timeline import FLIGHT, Span, Timeline, innermost

BOXED = ("forward", "backward", "weights", "update")
MOST_ROWS, SOME_ROWS = 32, 16  # more ranks than that have no room: then so many are shown, in whole replicas
SPOKEN = {"gpipe": "GPipe", "1f1b": "1F1B", "zero-bubble": "zero bubble", "pipedream": "PipeDream"}
SYNCS = {"averaging": "model averaging", "parameter-server": "parameter server"}


@dataclass
class Box:
    """Something in a rank's row."""

    kind: str
    start: float
    stop: float
    microbatch: int | None = None
    chunk: int | None = None


def steps_of(run: Timeline) -> dict[int, tuple[float, float]]:
    """Give the (start, stop) of each step that the spans name."""
    found: dict[int, tuple[float, float]] = {}
    for span in run.spans:
        if span.step is not None:
            start, stop = found.get(span.step, (span.start, span.stop))
            found[span.step] = min(start, span.start), max(stop, span.stop)
    return dict(sorted(found.items()))


def typical_step(run: Timeline) -> int | None:
    """Choose the step of median length, the first ones apart; None if no step is named, or each rank has its own."""
    steps = steps_of(run)
    if not steps or run.facts.get("sync") in SYNCS:
        return None
    later = list(steps.items())[1:] or list(steps.items())
    lengths = {step: stop - start for step, (start, stop) in later}
    median = statistics.median_low(lengths.values())
    return next(step for step, length in lengths.items() if length == median)


def of_step(run: Timeline, step: int) -> Timeline:
    """Cut out what happened while any rank was in this step."""
    steps = steps_of(run)
    if step not in steps:
        raise ValueError(f"step {step} is not in this run; there are {', '.join(map(str, steps)) or 'none'}")
    start, stop = steps[step]
    spans = [
        replace(span, start=max(start, span.start), stop=min(stop, span.stop))
        for span in run.spans
        if span.start < stop and span.stop > start
    ]
    flows = [flow for flow in run.flows if start <= flow.sent and flow.received <= stop]
    return Timeline(run.ranks, spans, flows, run.sent, run.memory, run.facts)


def shown_ranks(run: Timeline) -> list[int]:
    """Choose the ranks that are drawn: all, or the first replicas, who do what the others do, and the servers."""
    if run.ranks <= MOST_ROWS:
        return list(range(run.ranks))
    servers = run.facts.get("servers") or 0
    mesh = run.facts.get("mesh") or {}
    replica = max(1, (run.ranks - servers) // mesh.get("data", run.ranks))
    first = min(max(SOME_ROWS // replica, 1) * replica, MOST_ROWS)
    return [*range(first), *range(run.ranks - min(servers, MOST_ROWS // 4), run.ranks)]


def boxes(spans: list[Span]) -> tuple[list[Box], list[Box]]:
    """Give one rank's boxes and strips, in the order of time; spans: of one rank."""
    outer: list[Box] = []
    until = -float("inf")
    for span in sorted(spans, key=lambda span: (span.start, -span.stop)):
        if span.kind in BOXED and span.start >= until:
            outer.append(Box(span.kind, span.start, span.stop, span.microbatch, span.chunk))
            until = span.stop
    between: list[Box] = []
    strips: list[Box] = []
    place = 0
    for span, start, stop in innermost([span for span in spans if span.kind != FLIGHT]):
        while place < len(outer) and outer[place].stop <= start:
            place += 1
        inside = place < len(outer) and outer[place].start <= start
        if not inside and span.kind not in BOXED:
            between.append(Box(span.kind, start, stop))
        elif inside and span.kind in ("communication", "idle"):
            strips.append(Box(span.kind, start, stop))
    return joined(sorted([*outer, *between], key=lambda box: box.start)), joined(strips)


def joined(row: list[Box]) -> list[Box]:
    """Make one box of those of one thing that touch: the layers of a stage, each simulated by itself."""
    found: list[Box] = []
    for box in row:
        touches = bool(found) and box.start - found[-1].stop <= 1e-9 * max(box.start, 1e-3)
        if touches and replace(found[-1], start=box.start, stop=box.stop) == box:
            found[-1] = replace(found[-1], stop=box.stop)
        else:
            found.append(box)
    return found


def name_of(run: Timeline) -> str:
    """Say in some words what run this is; facts["name"] has the first word."""
    facts: dict[str, Any] = run.facts
    if facts.get("name"):
        return str(facts["name"])
    words = []
    mesh = {axis: size for axis, size in (facts.get("mesh") or {}).items() if size > 1}
    if facts.get("schedule"):
        words.append(SPOKEN.get(facts["schedule"], facts["schedule"]))
    if list(mesh) != ["pipe"] and mesh:
        words.append(", ".join(f"{axis}={size}" for axis, size in mesh.items()))
    if facts.get("zero"):
        words.append(f"ZeRO {facts['zero']}")
    if facts.get("sync") in SYNCS:
        words.append(SYNCS[facts["sync"]])
    if not words:
        words.append(f"{run.ranks} rank{'s' * (run.ranks > 1)}")
    return ", ".join(words)


def chunks_of(run: Timeline) -> int:
    """Count the stages that a rank has."""
    return 1 + max((span.chunk or 0 for span in run.spans), default=0)


def has_microbatches(run: Timeline) -> bool:
    """Say whether microbatches need numbers: there are several."""
    return len({span.microbatch for span in run.spans if span.kind in BOXED} - {None}) > 1


def most_waiting(run: Timeline) -> int:
    """Count the forwards of which a rank must keep what they leave for their backward, at most, at one time."""
    most = 0
    ends = "weights" if any(span.kind == "weights" for span in run.spans) else "backward"
    for spans in run.of_ranks():
        kept: set[tuple[int | None, int | None]] = set()
        for box in boxes(spans)[0]:
            if box.kind == "forward":
                kept.add((box.microbatch, box.chunk))
            elif box.kind == ends:
                kept.discard((box.microbatch, box.chunk))
            most = max(most, len(kept))
    return most
