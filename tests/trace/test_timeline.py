"""A timeline adds up what ranks did, and comes back from JSON as it was."""

import json

import numpy as np
import pytest

from minidist.trace.timeline import Flow, Span, Timeline


def two_ranks() -> Timeline:
    spans = [
        Span(0, "forward", "stage", 1.0, 3.0, microbatch=0),
        Span(0, "forward", "layer", 1.5, 2.5, layer="layers.0"),  # inside the first
        Span(0, "communication", "all_reduce", 2.0, 4.0, bytes=8),
        Span(1, "forward", "stage", 3.0, 4.0),
        Span(1, "backward", "stage", 4.0, 5.0),
    ]
    timeline = Timeline(2, spans, [Flow(0, 1, 3.0, 3.5, 8, "send")], memory=[[(1.0, 100)], []])
    timeline.sent[0, 1] = 8
    return timeline


def test_of_spans_that_lie_in_one_another_the_innermost_counts() -> None:
    seconds = two_ranks().seconds()
    assert {kind: per_rank.tolist() for kind, per_rank in seconds.items()} == {
        "forward": [1, 1],
        "backward": [0, 1],
        "communication": [2, 0],
    }


def test_bubble_is_the_idle_share_between_the_first_and_the_last_computation() -> None:
    assert two_ranks().bubble() == pytest.approx([0.75, 0.5])
    assert (two_ranks().start, two_ranks().stop) == (1, 5)


def test_a_timeline_comes_back_from_json_as_it_was() -> None:
    timeline = two_ranks()
    timeline.facts["title"] = "two ranks"
    back = Timeline.from_dict(json.loads(json.dumps(timeline.to_dict())))
    assert (back.ranks, back.spans, back.flows, back.memory, back.facts) == (
        timeline.ranks,
        timeline.spans,
        timeline.flows,
        timeline.memory,
        timeline.facts,
    )
    assert np.array_equal(back.sent, timeline.sent)


def test_a_timeline_without_spans_has_no_bubble_and_no_seconds() -> None:
    empty = Timeline(3)
    assert empty.seconds() == {}
    assert empty.bubble().tolist() == [0, 0, 0]
    assert empty.sent.shape == (3, 3)
