"""Schedules are complete, go on whatever the sizes, and idle and hold as much as their formulas say."""

from itertools import pairwise, product

import pytest

from minidist.split.schedule_times import UNIT, main, peak_live, simulate
from minidist.split.schedules import (
    SCHEDULES,
    Backward,
    BackwardInput,
    BackwardWeight,
    Forward,
    Instruction,
    Receive,
    Send,
    Update,
    gpipe,
    naive,
    one_f_one_b,
    pipedream,
    with_messages,
    zero_bubble,
)

SIZES = [(stages, microbatches) for stages in range(1, 6) for microbatches in range(1, 10)]
F, B = UNIT[Forward], UNIT[Backward]


def programs(schedule, stages, microbatches, chunks=1):
    return [with_messages(schedule, stages, rank, microbatches, chunks) for rank in range(stages)]


@pytest.mark.parametrize("name", [*SCHEDULES, "pipedream"])
def test_every_schedule_comes_to_its_end_and_does_each_microbatch_once(name):
    schedule = {**SCHEDULES, "pipedream": pipedream}[name]
    for (stages, microbatches), chunks in product(SIZES, (1, 2, 3)):
        if name == "pipedream" and chunks > 1:
            continue
        everyone = programs(schedule, stages, microbatches, chunks)
        simulate(everyone)  # raises if a rank cannot go on, or if a message is not received
        for program in everyone:
            for chunk in range(chunks):
                for kinds in ((Forward,), (Backward, BackwardInput), (Backward, BackwardWeight)):
                    done = [i.microbatch for i in program if isinstance(i, kinds) and i.chunk == chunk]
                    assert done == list(range(microbatches))


def test_a_rank_waits_for_what_it_needs_and_sends_what_it_made():
    def text(i: Instruction) -> str:
        kind = "F" if isinstance(i, Forward) else "B" if isinstance(i, Backward) else None
        if isinstance(i, Send | Receive):
            return f"{type(i).__name__.lower()} {'gradient' if i.gradient else 'activation'} {i.microbatch} {i.peer}"
        return f"{kind}{i.microbatch}"

    assert [text(i) for i in with_messages(one_f_one_b, 3, 1, 2)] == [
        *("receive activation 0 0", "F0", "send activation 0 2"),
        *("receive activation 1 0", "F1", "send activation 1 2"),
        *("receive gradient 0 2", "B0", "send gradient 0 0"),
        *("receive gradient 1 2", "B1", "send gradient 1 0"),
    ]
    assert [text(i) for i in with_messages(gpipe, 1, 0, 2)] == ["F0", "F1", "B0", "B1"]


@pytest.mark.parametrize(("stages", "microbatches"), SIZES)
def test_ranks_idle_as_long_as_the_formulas_say(stages, microbatches):
    def bubbles(schedule, chunks=1):
        timeline = simulate(programs(schedule, stages, microbatches, chunks))
        return {timeline.bubble(rank) for rank in range(stages)}

    assert bubbles(naive) == {microbatches * (stages - 1) * (F + B)}
    for schedule in (gpipe, one_f_one_b, pipedream):
        assert bubbles(schedule) == {(stages - 1) * (F + B)}
    if microbatches >= stages:
        for chunks in (2, 3):  # in the time of one chunk, which is 1/chunks of a stage's
            assert bubbles(one_f_one_b, chunks) == {(stages - 1) * (F + B)}
        assert bubbles(zero_bubble) == {(stages - 1) * (F + UNIT[BackwardInput] - UNIT[BackwardWeight])}


@pytest.mark.parametrize(("stages", "microbatches"), SIZES)
def test_as_many_microbatches_are_alive_as_the_formulas_say(stages, microbatches):
    def peaks(schedule, chunks=1):
        return [peak_live(program) for program in programs(schedule, stages, microbatches, chunks)]

    assert peaks(naive) == [1] * stages
    assert peaks(gpipe) == [microbatches] * stages
    assert peaks(one_f_one_b) == peaks(pipedream) == [min(microbatches, stages - i) for i in range(stages)]
    assert peaks(zero_bubble) == [min(microbatches, stages)] * stages
    if microbatches % stages == 0:
        for chunks in (2, 3):
            assert peaks(one_f_one_b, chunks) == [
                min(microbatches * chunks, 2 * (stages - i) - 1 + (chunks - 1) * stages)
                for i in range(stages)
            ]


def test_pipedream_updates_after_each_backward():
    for rank in range(3):
        order = list(pipedream(3, rank, 5, 1))
        after = [b for a, b in pairwise(order) if isinstance(a, Backward)]
        assert after == [Update(m) for m in range(5)]


def test_sends_that_wait_for_their_receivers_stop_1f1b_and_not_gpipe():
    simulate(programs(gpipe, 3, 4), blocking=True)
    with pytest.raises(
        ValueError, match=r"rank 0 waits at Send\(microbatch=1.*rank 1 waits at Send\(microbatch=0"
    ):
        simulate(programs(one_f_one_b, 2, 4), blocking=True)


def test_a_wrong_schedule_is_refused():
    def swapped(stages, rank, microbatches, chunks=1):  # backward before its forward, on one rank
        order = list(gpipe(stages, rank, microbatches, chunks))
        return order[::-1] if rank == 1 else order

    def mislabelled(stages, rank, microbatches, chunks=1):  # one rank sends microbatch 0 twice, and never 1
        return [Forward(0), Forward(0)] if rank == 0 else [Forward(0), Forward(1)]

    with pytest.raises(ValueError, match="cannot come to its end: rank 0 waits at Receive"):
        simulate(programs(swapped, 3, 2))
    with pytest.raises(ValueError, match=r"cannot come to its end: rank 1 waits at Receive\(microbatch=1"):
        simulate(programs(mislabelled, 2, 2))
    extra = programs(gpipe, 2, 1)
    extra[0].append(Send(5, 1, False, 1))
    with pytest.raises(ValueError, match="nobody receives microbatch 5 for stage 1"):
        simulate(extra)


def test_the_picture_shows_who_does_what_when(capsys):
    assert main(["1f1b", "3", "3"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "rank 0   F0 F1 F2 .. .. .. .. B0 B0 .. B1 B1 .. B2 B2",
        "rank 1   .. F0 F1 .. .. B0 B0 F2 B1 B1 .. B2 B2 .. ..",
        "rank 2   .. .. F0 B0 B0 F1 B1 B1 F2 B2 B2 .. .. .. ..",
        "rank 0: idle 6, alive at most 3",
        "rank 1: idle 6, alive at most 2",
        "rank 2: idle 6, alive at most 1",
    ]
    assert main(["1f1b", "2", "2", "2"]) == 0
    assert capsys.readouterr().out.startswith("rank 0   F0a F1a F0b F1b ... ... B0b B0b ... B1b")
    assert main(["zigzag", "3", "3"]) == 2
    assert "naive, gpipe, 1f1b, zero-bubble, pipedream" in capsys.readouterr().err
