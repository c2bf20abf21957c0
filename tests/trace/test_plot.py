"""Pictures show what the timeline says: as many boxes, the same numbers, the same bubble."""

import pytest

from minidist.trace.timeline import Span, Timeline

pytest.importorskip("matplotlib")


def test_the_timeline_shows_every_span_its_microbatch_and_the_bubble():
    from minidist.trace import plot

    spans = [
        Span(r, "forward", "forward", r + m, r + m + 1, microbatch=m) for r in range(2) for m in range(3)
    ]
    run = Timeline(2, spans, facts={"schedule": "gpipe"})
    figure = plot.timeline(run)
    (axes,) = figure.axes
    assert len(axes.patches) == len(spans)
    assert sorted(text.get_text() for text in axes.texts) == ["0", "0", "1", "1", "2", "2"]
    assert f"{run.bubble().mean():.0%}" in axes.get_title(loc="left")
    figure.draw_without_rendering()
    for text in [*axes.texts, *axes.get_yticklabels(), *axes.get_xticklabels()]:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0, text.get_text()
        assert box.x1 <= figure.bbox.x1, text.get_text()
