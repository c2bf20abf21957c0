"""The file that `--trace` writes keeps the rules of Chrome's trace-event format, which its viewers rely on."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from minidist.trace import chrome
from minidist.trace.timeline import Flow, Span, Timeline

NEEDED = {  # keys of an event, by its phase
    "X": {"name", "ts", "dur", "pid", "tid"},
    "M": {"name", "pid", "args"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid"},
    "C": {"name", "ts", "pid", "args"},
}
NAMES = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


def two_ranks() -> Timeline:
    spans = [
        Span(0, "compute", "step 1", 0.0, 4e-3, step=1),
        Span(0, "forward", "forward", 0.0, 1e-3, step=1, microbatch=0),
        Span(0, "forward", "layers.0", 0.0, 0.5e-3, step=1, microbatch=0, layer="layers.0"),
        Span(0, "communication", "send", 1e-3, 1.2e-3, step=1, microbatch=0, bytes=8, peer=1),
        Span(0, "flight", "all_reduce", 1.5e-3, 3e-3, step=1, bytes=80),
        Span(0, "flight", "all_reduce", 2e-3, 3.5e-3, step=1, bytes=80),
        Span(0, "flight", "all_reduce", 3e-3, 3.6e-3, step=1, bytes=80),
        Span(1, "compute", "serve", 1 / 3e3, 4e-3),
        Span(1, "idle", "recv", 1 / 3e3, 1.3e-3, peer=0),
    ]
    timeline = Timeline(2, spans, [Flow(0, 1, 1.1e-3, 1.3e-3, 8, "activation")], memory=[[(1e-3, 99)], []])
    timeline.sent[0, 1] = 8
    timeline.facts = {"command": "a --b <c>", "losses": [1.0, 0.5]}
    return timeline


def problems(plain: dict[str, Any]) -> list[str]:
    """List what chrome://tracing or Perfetto would leave out, warn of, or draw in the wrong place."""
    found: list[str] = []
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    arrows: dict[tuple[str, int], dict[str, float]] = {}
    if plain.get("displayTimeUnit") not in ("ms", "ns"):
        found.append("displayTimeUnit is neither ms nor ns")
    for event in plain["traceEvents"]:
        phase = event.get("ph")
        if missing := NEEDED.get(phase, {"a known phase"}) - set(event):
            found.append(f"{event} has no {missing}")
            continue
        for key in ("ts", "dur"):
            if key in event and not (type(event[key]) in (int, float) and 0 <= event[key] < 2**53):
                found.append(f"{event}: {key} is no time")
        if type(event["pid"]) is not int or type(event.get("tid", 0)) is not int:
            found.append(f"{event}: pid and tid are whole numbers")
        if phase == "M" and set(event["args"]) != {NAMES.get(event["name"])}:
            found.append(f"{event} names nothing")
        if phase == "C" and not all(type(value) in (int, float) for value in event["args"].values()):
            found.append(f"{event}: a curve is of numbers")
        if phase == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
        if phase in "sf":
            ends = arrows.setdefault((event["cat"], event["id"]), {})
            if phase in ends:
                found.append(f"{event}: two arrows have one id")
            ends[phase] = event["ts"]
            ends[f"track {phase}"] = (event["pid"], event["tid"])
            if phase == "f" and event.get("bp") != "e":
                found.append(f"{event} ends at the next span, and not at the one around it")
    for track, spans in tracks.items():
        around: list[float] = []
        for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
            while around and around[-1] <= start + 1e-6:
                around.pop()
            if around and stop > around[-1] + 1e-3:
                found.append(f"track {track}: a span from {start} to {stop} lies across another's end")
            around.append(stop)
    for name, ends in arrows.items():
        if not {"s", "f"} <= set(ends):
            found.append(f"arrow {name} has one end")
        elif ends["f"] < ends["s"]:
            found.append(f"arrow {name} ends before it begins")
        for end in "sf":
            if end in ends and not any(
                start - 1e-3 <= ends[end] <= stop + 1e-3
                for start, stop in tracks.get(ends[f"track {end}"], [])
            ):
                found.append(f"arrow {name}: no span is around its {end}")
    return found


def test_the_file_keeps_the_rules_of_the_format(tmp_path: Path) -> None:
    chrome.write(two_ranks(), tmp_path / "trace.json")
    plain = json.loads((tmp_path / "trace.json").read_text())
    assert problems(plain) == []
    tracks = [event["args"]["name"] for event in plain["traceEvents"] if event["name"] == "thread_name"]
    assert tracks == ["rank 0", "rank 0 in flight", "rank 0 in flight", "rank 1"]


def test_the_rules_find_what_is_against_them() -> None:
    events = chrome.to_events(two_ranks())
    for change in (
        lambda event: event.pop("ts"),
        lambda event: event.update(ts=-1.0),
        lambda event: event.update(tid="main"),
        lambda event: event.update(ph="Y"),
        lambda event: event.update(id=7),
        lambda event: event.update(dur=5e3),
        lambda event: event.update(args={"bytes": "many"}),
    ):
        found = 0
        for number in range(len(events)):
            changed = [dict(event) for event in events]
            try:
                change(changed[number])
            except KeyError:
                continue
            found += bool(problems({"traceEvents": changed, "displayTimeUnit": "ms"}))
        assert found


def test_a_timeline_comes_back_from_its_file(tmp_path: Path) -> None:
    timeline = two_ranks()
    chrome.write(timeline, tmp_path / "trace.json")
    back = chrome.read(tmp_path / "trace.json")
    assert (back.ranks, back.facts) == (timeline.ranks, timeline.facts)
    assert np.array_equal(back.sent, timeline.sent)

    def in_ns(spans: list[Span]) -> list[tuple[Any, ...]]:
        plain = [[getattr(span, name) for name in Span.__slots__] for span in spans]
        return sorted(
            (tuple(round(x * 1e9) if type(x) is float else x for x in row) for row in plain), key=str
        )

    assert in_ns(back.spans) == in_ns(timeline.spans)
    (flow,) = back.flows
    assert (flow.source, flow.dest, flow.bytes, flow.name) == (0, 1, 8, "activation")
    assert (round(flow.sent * 1e6), round(flow.received * 1e6)) == (1100, 1300)
    assert back.memory == [[(1e-3, 99)], []]


def test_a_simulated_timeline_can_be_written_too(tmp_path: Path) -> None:
    timeline = Timeline(1, [Span(0, "forward", "stage", 0.0, 1.0)])
    chrome.write(timeline, tmp_path / "trace.json")
    assert problems(json.loads((tmp_path / "trace.json").read_text())) == []
