"""Write a timeline as Chrome trace events, which https://ui.perfetto.dev and chrome://tracing open as they are.

    {"traceEvents": [...], "displayTimeUnit": "ms", "otherData": {...}}

    "ph": "M"          names: of a process (here all ranks are one) and of its threads, the tracks of the ranks
    "ph": "X"          a span: ts and dur in microseconds, on the track (pid, tid); of one track they lie in one another
    "ph": "s", "f"     an arrow from a send to its receive, of one id; each is drawn at the span around its ts
    "ph": "C"          a curve: the memory of each rank

Each rank has one track, and below those of all ranks as many as it takes for what was in flight at the same time.
Whatever the events do not hold stands in otherData, so that `read` gives the timeline back.

Google, "Trace Event Format", 2016.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from minidist.trace.timeline import FLIGHT, Flow, Span, Timeline

PROCESS = 100
# Thread ids: rank + 1, and from here on for what is in flight, so many for each rank.
FLIGHTS, LANES = 10_000, 100
# Names of colours that chrome://tracing reserves; Perfetto chooses by the name of the span.
COLOURS = {
    "forward": "thread_state_running",
    "backward": "rail_response",
    "weights": "rail_animation",
    "update": "rail_load",
    "compute": "generic_work",
    "communication": "thread_state_iowait",
    "idle": "grey",
    FLIGHT: "thread_state_runnable",
}
ARGUMENTS = ("kind", "name", "step", "microbatch", "chunk", "layer", "bytes", "peer")


def write(timeline: Timeline, path: str | Path) -> None:
    """Write a timeline to a file. Raises OSError where that cannot be done."""
    # Encoded all at once, which is faster; no text has this in it, for there a quote is written as \".
    events = json.dumps(to_events(timeline))[1:-1].replace('}, {"ph"', '},\n{"ph"')
    rest = {"displayTimeUnit": "ms", "otherData": other_data(timeline)}
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"traceEvents": [\n' + events + "\n],\n" + json.dumps(rest)[1:] + "\n")


def read(path: str | Path) -> Timeline:
    """Read what `write` has written; the times are back to a thousandth of a microsecond."""
    with open(path, encoding="utf-8") as file:
        plain = json.load(file)
    about = plain["otherData"]
    timeline = Timeline(about["ranks"], memory=[[] for _ in range(about["ranks"])], facts=about["facts"])
    for source, dest, nbytes in about["sent"]:
        timeline.sent[source, dest] = nbytes
    arrows: dict[int, dict[str, Any]] = {}
    for event in plain["traceEvents"]:
        rank, time = _rank_of(event["tid"]), event.get("ts", 0.0) / 1e6
        if event["ph"] == "X":
            facts = dict(event["args"])
            timeline.spans.append(
                Span(
                    rank,
                    facts.pop("kind"),
                    facts.pop("name"),
                    time,
                    round(event["ts"] + event["dur"], 3) / 1e6,
                    **facts,
                )
            )
        elif event["ph"] == "s":
            arrows[event["id"]] = {"source": rank, "sent": time, "name": event["name"], **event["args"]}
        elif event["ph"] == "f":
            timeline.flows.append(Flow(dest=rank, received=time, **arrows[event["id"]]))
        elif event["ph"] == "C":
            timeline.memory[rank].append((time, event["args"]["bytes"]))
    return timeline


def other_data(timeline: Timeline) -> dict[str, Any]:
    """Give what no event says."""
    return {"ranks": timeline.ranks, "sent": timeline.sent_list(), "facts": timeline.facts}


def to_events(timeline: Timeline) -> list[dict[str, Any]]:
    """Give the events, names first, then in the order of time."""
    names = [_name("process_name", 1, timeline.facts.get("command", "minidist"))]
    spans: list[dict[str, Any]] = []
    for rank in range(timeline.ranks):
        names += _track(rank + 1, f"rank {rank}")
        own = [span for span in timeline.spans if span.rank == rank]
        spans += [_span(span, rank + 1) for span in own if span.kind != FLIGHT]
        lanes: list[float] = []  # until when each is taken
        for span in sorted((span for span in own if span.kind == FLIGHT), key=lambda span: span.start):
            lane = next((lane for lane, until in enumerate(lanes) if until <= span.start), len(lanes))
            if lane < LANES:  # more at the same time cannot be drawn
                lanes[lane : lane + 1] = [span.stop]
                spans.append(_span(span, FLIGHTS + rank * LANES + lane))
        for lane in range(len(lanes)):
            names += _track(FLIGHTS + rank * LANES + lane, f"rank {rank} in flight")
    spans.sort(key=lambda event: (event["ts"], -event["dur"]))
    return names + spans + _arrows(timeline) + _curves(timeline)


def _name(what: str, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": PROCESS, "tid": tid, "name": what, "args": {"name": name}}


def _track(tid: int, name: str) -> list[dict[str, Any]]:
    order = {"ph": "M", "pid": PROCESS, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}
    return [_name("thread_name", tid, name), order]


def _rank_of(tid: int) -> int:
    return tid - 1 if tid < FLIGHTS else (tid - FLIGHTS) // LANES


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _span(span: Span, tid: int) -> dict[str, Any]:
    start, stop = _us(span.start), _us(span.stop)
    return {
        "ph": "X",
        "pid": PROCESS,
        "tid": tid,
        "ts": start,
        "dur": round(stop - start, 3),
        "name": _shown(span),
        "cat": span.kind,
        "cname": COLOURS[span.kind],
        "args": {name: value for name in ARGUMENTS if (value := getattr(span, name)) is not None},
    }


def _shown(span: Span) -> str:
    """Say in the box what it is; Perfetto colours by this, but for a number at its end."""
    if span.kind == "idle":
        return "idle"
    if span.microbatch is not None and span.name == span.kind:
        return f"{span.name} {span.microbatch}"
    return span.name


def _arrows(timeline: Timeline) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for number, flow in enumerate(timeline.flows, 1):
        about = {"pid": PROCESS, "cat": "message", "name": flow.name or "message", "id": number}
        source, dest = flow.source + 1, flow.dest + 1
        events.append(
            {"ph": "s", "tid": source, "ts": _us(flow.sent), **about, "args": {"bytes": flow.bytes}}
        )
        events.append({"ph": "f", "bp": "e", "tid": dest, "ts": _us(flow.received), **about})
    return sorted(events, key=lambda event: event["ts"])


def _curves(timeline: Timeline) -> list[dict[str, Any]]:
    return [
        {
            "ph": "C",
            "pid": PROCESS,
            "tid": rank + 1,
            "ts": _us(time),
            "name": f"rank {rank} memory",
            "cat": "memory",
            "args": {"bytes": nbytes},
        }
        for rank, points in enumerate(timeline.memory)
        for time, nbytes in points
    ]
