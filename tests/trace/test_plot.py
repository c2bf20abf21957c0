"""Pictures show what the timeline says, and all their text can be read at the width of a notebook."""

import pytest

from minidist.comm.threads import run_ranks
from minidist.errors import UserError
from minidist.simulate.__main__ import main as simulating
from minidist.split.schedule_times import as_run
from minidist.trace import plot
from minidist.trace.plot import rows, style
from minidist.trace.timeline import Flow, Span, Timeline
from minidist.train.__main__ import main

matplotlib = pytest.importorskip("matplotlib")


def run(ranks: int = 4, steps: int = 1) -> Timeline:
    """A step of each rank: forward with a layer and a wait in it, a message, backward, an update."""
    spans = []
    for step in range(steps):
        for rank in range(ranks):
            spans += [
                Span(rank, kind, name, step + start, step + stop, step + 1 if steps > 1 else None, microbatch)
                for kind, name, start, stop, microbatch in (
                    ("compute", "step", 0.0, 0.9 + 0.1 * (step == 1), None),
                    ("forward", "forward", 0.0, 0.3, 0),
                    ("forward", "layers.0", 0.0, 0.2, 0),
                    ("idle", "all_reduce", 0.05, 0.1, 0),
                    ("communication", "send", 0.3, 0.35, 0),
                    ("backward", "backward", 0.4, 0.7, 0),
                    ("flight", "all_reduce", 0.4, 0.8, None),
                    ("update", "update", 0.7, 0.8, None),
                )
            ]
    found = Timeline(ranks, spans, [Flow(0, ranks - 1, 0.3, 0.4, 8, "activation")])
    found.sent[:] = 1234
    found.sent.ravel()[:: ranks + 1] = 0
    found.memory = [[(0.0, 10**6), (0.5, 2 * 10**6)] for _ in range(ranks)]
    found.facts = {
        "losses": [2.0, 1.0],
        "accuracy": 0.5,
        "accuracies": [(1, 0.3), (2, 0.5)],
        "work": {"layers.0": (2e9, 1e8), "layers.1": (1.0, 1.0)},  # of the second no forward was seen
        "roof": (5e10, 1e9),
        "servers": 0,
        "mesh": {"data": ranks},
        "steps": steps,
    }
    return found


def texts(figure):
    """All text that is seen."""
    return [
        text
        for text in figure.findobj(matplotlib.text.Text)
        if text.get_text() and text.get_visible() and not hasattr(text, "arrow_patch")
    ]


def check_readable(figure) -> None:
    """All text is large enough, in the figure, and covers no other."""
    figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == 7
    boxes = {}
    ticks = {
        label
        for axes in figure.findobj(matplotlib.axes.Axes)
        for axis in (axes.xaxis, axes.yaxis)
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        if not axis.get_view_interval().min() <= tick.get_loc() <= axis.get_view_interval().max()
        for label in (tick.label1, tick.label2)
    }
    for text in texts(figure):
        if text in ticks:
            continue
        assert text.get_fontsize() >= 9, text.get_text()
        box = boxes[text] = text.get_window_extent()
        assert figure.bbox.x0 - 1 <= box.x0, text.get_text()
        assert box.x1 <= figure.bbox.x1 + 1, text.get_text()
        assert figure.bbox.y0 - 1 <= box.y0, text.get_text()
        assert box.y1 <= figure.bbox.y1 + 1, text.get_text()
    placed = list(boxes.items())
    for number, (text, box) in enumerate(placed):
        for other, beside in placed[number + 1 :]:
            over = (
                min(box.x1, beside.x1) - max(box.x0, beside.x0),
                min(box.y1, beside.y1) - max(box.y0, beside.y0),
            )
            assert min(over) < 2, (text.get_text(), other.get_text())


def test_a_row_shows_the_outermost_computations_and_what_happens_between_them():
    boxes, strips = rows.boxes(run().of_ranks()[0])
    seen = [(box.kind, round(box.start, 2), round(box.stop, 2)) for box in boxes]
    assert seen == [
        ("forward", 0.0, 0.3),
        ("communication", 0.3, 0.35),
        ("compute", 0.35, 0.4),
        ("backward", 0.4, 0.7),
        ("update", 0.7, 0.8),
        ("compute", 0.8, 1.0 - 0.1),
    ]
    assert [(box.kind, box.start, box.stop) for box in strips] == [("idle", 0.05, 0.1)]


def test_waiting_in_a_computation_is_seen_above_it():
    (axes,) = plot.timeline(run()).axes
    highest = max(axes.collections, key=lambda collection: collection.get_zorder())
    assert len(highest.get_paths()) == 4
    assert matplotlib.colors.to_hex(highest.get_facecolor()[0]) == style.PALE.lower()


def test_layers_of_one_stage_that_follow_each_other_are_one_box():
    spans = [Span(0, "forward", "stage", n, n + 1, microbatch=n // 2) for n in range(4)]
    assert [(box.microbatch, box.start, box.stop) for box in rows.boxes(spans)[0]] == [(0, 0, 2), (1, 2, 4)]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_schedule_has_a_numbered_box_for_each_forward_and_backward_and_says_what_it_costs(schedule):
    drawn = as_run(schedule, 4, 8)
    figure = plot.timeline(drawn)
    (axes,) = figure.axes
    numbers = [text.get_text() for text in axes.texts]
    assert sorted(numbers) == sorted(str(m) for m in range(8) for _ in range(2 * 4))
    title = axes.get_title(loc="left")
    assert f"{drawn.bubble().mean():.0%}" in title
    assert f"at most {8 if schedule == 'gpipe' else 4} forwards" in title
    check_readable(figure)


def test_numbers_stand_only_in_boxes_that_have_room():
    (axes,) = plot.timeline(as_run("1f1b", 4, 64)).axes
    assert not axes.texts


def test_a_step_of_median_length_is_drawn_unless_another_is_asked_for():
    several = run(steps=4)
    assert rows.typical_step(several) in (3, 4)  # the first warms up, the second is longer
    assert rows.steps_of(rows.of_step(several, 2)) == {2: (1.0, 2.0)}
    with pytest.raises(ValueError, match="step 9 is not in this run; there are 1, 2, 3, 4"):
        plot.timeline(several, step=9)


@pytest.mark.parametrize(("ranks", "lines"), [(1, 1), (8, 8), (64, 16)])
def test_every_picture_can_be_read_whatever_the_number_of_ranks(ranks, lines):
    drawn = run(ranks)
    assert len(rows.shown_ranks(drawn)) == lines
    check_readable(plot.one_page(drawn))


def test_pictures_compare_several_runs():
    for draw in (plot.timeline, plot.curves, plot.bytes_matrix, plot.time_split, plot.memory):
        check_readable(draw([run(2), run(4)]))


def test_what_a_run_does_not_know_is_left_out_of_its_page():
    assert len(plot.one_page(as_run("zero-bubble", 2, 4)).findobj(matplotlib.axes.Axes)) == 2


def test_of_a_replica_of_many_ranks_and_its_servers_whole_ones_are_shown():
    many = Timeline(67, facts={"mesh": {"data": 13, "pipe": 5}, "servers": 2})
    assert rows.shown_ranks(many) == [*range(15), 65, 66]


def test_a_layer_lies_under_the_roof_where_its_operations_and_its_time_say():
    figure = plot.roofline(run())
    check_readable(figure)
    roof, layer = figure.axes[0].lines
    assert layer.get_label() == "layers.0"
    assert (layer.get_xdata()[0], layer.get_ydata()[0]) == pytest.approx((20.0, 2e9 / 0.2 / 1e9))
    assert roof.get_ydata().max() == 50
    assert roof.get_ydata()[0] == pytest.approx(roof.get_xdata()[0])


def test_accuracies_on_the_way_are_drawn_beside_the_losses():
    losses, accuracies = plot.curves(run()).axes
    assert losses.lines[0].get_ydata().tolist() == [2.0, 1.0]
    assert accuracies.lines[0].get_ydata() == pytest.approx([0.3, 0.5])


def test_a_notebook_shows_a_picture_without_pyplot():
    assert plot.curves(run())._repr_png_().startswith(b"\x89PNG")


def test_a_training_draws_its_page(tmp_path):
    path = tmp_path / "run.svg"
    command = ["--quiet", "--steps", "3", "--batch", "30", "--mode", "parameter-server", "--plot", str(path)]
    assert run_ranks(lambda comm: main(command), 3) == [0, 0, 0]
    assert "<svg" in path.read_text()


def test_a_picture_that_could_not_be_written_is_refused_before_anything_is_done(
    tmp_path, capsys, monkeypatch
):
    with pytest.raises(UserError, match=r"--plot run.jpg: a picture's name ends with .png, .svg or .pdf"):
        run_ranks(lambda comm: main(["--plot", "run.jpg"]), 2)
    assert simulating(["schedule", "--plot", str(tmp_path / "no" / "run.png")]) == 2
    assert "there is no directory" in capsys.readouterr().err
    monkeypatch.setattr(style.util, "find_spec", lambda name: None)
    assert simulating(["--plot", str(tmp_path / "run.png")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert 'pip install "minidist[plot]"' in said.err
