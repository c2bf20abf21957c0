"""Bring what all ranks have written down to rank 0, on one clock: a `Timeline`.

    every rank    its rows on rank 0's clock ---> JSON ---> rank 0     spans, flows (a send and its receive), bytes

Where a recording was too long for some rank's memory, the steps that all ranks still have in full are kept.
Read next: `chrome.py`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from minidist.trace.clocks import compare_clocks, on_rank_0
from minidist.trace.messages import End
from minidist.trace.record import Recorder, Row
from minidist.trace.timeline import Flow, Span, Timeline


def gather(recorder: Recorder) -> Timeline | None:
    """Give rank 0 the timeline of all ranks, the others None; a collective, after the recording has ended."""
    recorder.moments.append(compare_clocks(recorder.comm, recorder.clock))
    line, tag = recorder.comm.quiet(), recorder.comm.endpoint.largest_tag
    own = one_rank(recorder)
    if line.rank:
        line.send(np.frombuffer(json.dumps(own).encode(), np.uint8), 0, tag)
        return None
    told = [own]
    for rank in range(1, line.size):
        told.append(json.loads(line.irecv_new(rank, tag).wait().tobytes()))
    return join(told)


def one_rank(recorder: Recorder) -> dict[str, Any]:
    """Give what this rank has written down, in plain lists and on rank 0's clock."""
    first, steps = complete_steps(recorder)

    def there(time: float) -> float:
        return on_rank_0(recorder.moments, time)

    def moved(rows: list[Row]) -> list[list[Any]]:
        return [[kind, name, there(start), there(stop), *rest] for kind, name, start, stop, *rest in rows]

    def ends(found: list[End]) -> list[list[Any]]:
        return [[there(time), *key[:1], list(key[1]), *key[2:], *rest] for time, key, *rest in found]

    messages, (before, after) = recorder.messages, recorder.moments
    return {
        "first": first,
        "steps": len(recorder.begins),
        "spans": moved([*steps, *recorder.spans]),
        "flights": moved(list(recorder.flights)),
        "sends": ends(list(messages.sends)),
        "receives": ends(list(messages.receives)),
        "sent": messages.sent,
        "memory": [[there(time), nbytes] for time, nbytes in recorder.memory],
        "began": there(recorder.began),
        "clock": {
            "seconds_behind_at_first": before.offset,
            "seconds_behind_at_last": after.offset,
            "wrong_by_at_most": max(before.round_trip, after.round_trip) / 2,
        },
    }


def complete_steps(recorder: Recorder) -> tuple[int, list[Row]]:
    """Give the first step of which every record is still here (1 if nothing was dropped), and a row for each step.

    A step's row holds everything in it: what no other row says is computing, and all the rest of Python.
    """
    begins = recorder.begins
    kept = [rows[0][2] for rows in (recorder.spans, recorder.flights) if len(rows) == recorder.most]
    messages = recorder.messages
    kept += [ends[0][0] for ends in (messages.sends, messages.receives) if len(ends) == recorder.most]
    since = max(kept, default=-np.inf)
    first = 1 + sum(begin <= since for begin in begins)
    if not begins:  # a server: it has no steps of its own
        row: Row = ("compute", "serve", recorder.began, recorder.ended, None, None, None, None, None, None)
        return 1, [row]
    starts = [recorder.began, *begins[1:]]
    rows: list[Row] = [
        ("compute", f"step {number}", start, stop, number, None, None, None, None, None)
        for number, (start, stop) in enumerate(zip(starts, [*starts[1:], recorder.ended], strict=True), 1)
    ]
    return first, rows


def join(told: list[dict[str, Any]]) -> Timeline:
    """Make one timeline of what all ranks have told; it begins at 0."""
    first = max(one["first"] for one in told)
    last = max(one["steps"] for one in told)
    rows = [(rank, row) for rank, one in enumerate(told) for row in [*one["spans"], *one["flights"]]]
    if first > 1:  # what belongs to no step goes by time
        origin = min(row[2] for _, row in rows if row[4] is not None and row[4] >= first)
        rows = [(r, row) for r, row in rows if (row[2] >= origin if row[4] is None else row[4] >= first)]
    origin = min(row[2] for _, row in rows)
    rows.sort(key=lambda pair: (pair[0], pair[1][2], -pair[1][3]))
    spans = [
        Span(rank, kind, name, start - origin, stop - origin, *rest)
        for rank, (kind, name, start, stop, *rest) in rows
    ]
    sent = np.array([one["sent"] for one in told], np.int64)
    memory = [[(time - origin, nbytes) for time, nbytes in one["memory"] if time >= origin] for one in told]
    clocks = [one["clock"] for one in told]
    facts = {
        "measured": True,
        "steps": [first, last],
        "dropped_steps": first - 1,
        "clock": {"of": "rank 0", **{name: [clock[name] for clock in clocks] for name in clocks[0]}},
    }
    return Timeline(len(told), spans, flows(told, origin), sent, memory, facts)


def flows(told: list[dict[str, Any]], origin: float) -> list[Flow]:
    """Pair each send with its receive. A message cannot come before it was sent, whatever the clocks' error says."""
    sent = {}
    for one in told:
        for time, name, members, *rest in one["sends"]:
            sent[(name, tuple(members), *rest[:4])] = time
    found = []
    for one in told:
        for time, name, members, tag, source, dest, number, nbytes, purpose in one["receives"]:
            left = sent.get((name, tuple(members), tag, source, dest, number))
            if left is not None and left >= origin:
                found.append(Flow(source, dest, left - origin, max(left, time) - origin, nbytes, purpose))
    return sorted(found, key=lambda flow: flow.sent)
