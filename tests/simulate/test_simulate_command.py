"""A simulated training sends and holds what is foretold for a real one, and takes what closed formulas say."""

import json

import numpy as np
import pytest

from minidist.plan import cost
from minidist.plan.cluster import Cluster, Link
from minidist.plan.sent import by_purpose
from minidist.plan.traffic import total
from minidist.simulate.__main__ import main
from minidist.simulate.costs import Costs
from minidist.simulate.imagine import imagine
from minidist.simulate.job import simulate
from minidist.split.schedule_times import peak_live
from minidist.split.schedule_times import simulate as times
from minidist.split.schedules import SCHEDULES, with_messages
from minidist.trace.timeline import COMPUTES, Timeline
from minidist.train.forecast import forecast
from minidist.train.holdings import kept
from minidist.train.options import parse

CLUSTER = Cluster("test", 64, 1e9, 1e9, Link(1e-5, 1e9), Link(1e-5, 1e9), shared_memory=True)
FREE = Cluster("free", 64, 1e9, 1e9, Link(), Link())
UNIT = Costs(lambda model, piece, n: 1.0, lambda model, piece, n: 2.0, lambda nbytes, slots: 0.0)
GPT = "--model gpt --layers 4 --width 16 --heads 4 --batch 13"

MODES = [
    (3, "--mode data"),
    (3, "--mode data --model cnn --accumulate 2"),
    (3, "--mode data --zero 1"),
    (3, f"--mode data --zero 2 {GPT}"),
    (3, f"--mode data --zero 3 {GPT} --accumulate 2"),
    (2, f"--mode model {GPT}"),
    (3, f"--mode model --sequence-parallel {GPT}"),
    (3, "--mode model"),
    (3, f"--mode pipeline {GPT}"),
    (3, f"--mode pipeline --schedule interleaved {GPT} --accumulate 2"),
    (3, f"--mode pipeline --schedule zero-bubble {GPT}"),
    (4, f"--mesh data=2,pipe=2 --schedule pipedream {GPT}"),
    (4, f"--mesh data=2,pipe=2 {GPT}"),
    (4, f"--mesh data=2,pipe=2 --zero 3 {GPT}"),
    (4, f"--mesh pipe=2,tensor=2 --recompute {GPT}"),
    (4, f"--mesh data=2,tensor=2 --sync averaging --average-every 1 {GPT}"),
    (4, "--mode parameter-server --servers 2"),
    (4, "--mode parameter-server --slack none"),
    (5, f"--mesh data=2,pipe=2 --sync parameter-server {GPT}"),
]


def job(ranks, text, cluster=CLUSTER):
    options = parse(text.split())
    options.batch = min(options.batch, 13)
    return imagine(options, ranks, cluster.places(ranks), cluster.shared_memory)


@pytest.mark.parametrize(
    ("ranks", "text", "devices"), [(*mode, (64, 2)[i % 2]) for i, mode in enumerate(MODES)]
)
def test_every_rank_sends_and_holds_what_is_foretold(ranks, text, devices):
    cluster = Cluster("test", devices, 1e9, 1e9, Link(1e-5, 1e9), Link(1e-4, 1e8), shared_memory=True)
    whole = job(ranks, text, cluster)
    played = simulate(whole, cluster, UNIT)
    for rank in range(whole.arrangement.workers):
        setup = whole.worker(rank)
        lines = [
            line
            for occasion in forecast(whole.options, whole.dataset, setup)
            if occasion.what.startswith(("step", "average"))
            for line in occasion.lines
        ]
        assert played.sent[rank].sum() == total(by_purpose(lines).values()).bytes, f"rank {rank}"
        held = sum(part.nbytes for part in kept(whole.options, whole.dataset, setup) if part.always)
        assert played.memory[rank][0] == (0, held)


@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b", "interleaved"])
def test_a_played_schedule_is_the_drawn_one(schedule):
    chunks = 2 if schedule == "interleaved" else 1
    text = f"--mode pipeline --schedule {schedule} --microbatches 4 --hidden 64,64,64,64,64"
    whole = job(3, text, FREE)
    played = simulate(whole, FREE, UNIT)
    rule = SCHEDULES["1f1b" if schedule == "interleaved" else schedule]
    drawn = times([with_messages(rule, 3, rank, 4, chunks) for rank in range(3)])
    pieces = 6 // (3 * chunks)  # in each chunk, and each takes 1
    for rank, rows in enumerate(drawn.ranks):
        starts = [start * pieces for start, _, _ in rows]
        computed = sorted(
            span.start for span in played.spans if span.rank == rank and span.kind in COMPUTES[:2]
        )
        assert computed[:1] == starts[:1]
        assert set(starts) <= set(computed)
    assert played.stop == drawn.end * pieces


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "naive"])
def test_pipelines_take_and_hold_what_their_formulas_say(schedule):
    stages, microbatches = 3, 5
    text = f"--mode pipeline --schedule {schedule} --microbatches {microbatches} --hidden 8,8"
    whole = job(stages, text, FREE)
    played = simulate(whole, FREE, UNIT)
    if schedule == "naive":
        assert played.stop == microbatches * stages * 3
    else:
        assert played.stop == cost.pipeline(stages, microbatches, 1, 2)
        assert played.bubble() == pytest.approx([(stages - 1) / (microbatches + stages - 1)] * stages)
    for rank in range(stages):
        replica = whole.worker(rank).replica
        alive = peak_live(replica.program(replica.schedule, microbatches))
        assert alive == {"naive": 1, "gpipe": microbatches, "1f1b": stages - rank}[schedule]
        held = kept(whole.options, whole.dataset, whole.worker(rank))
        assert max(nbytes for _, nbytes in played.memory[rank]) <= sum(part.nbytes for part in held)


@pytest.mark.parametrize(
    "text", [f"--mesh data=4,pipe=2 {GPT}", "--mode data --zero 1", "--mode data --zero 3"]
)
def test_one_replica_stands_for_all_where_they_do_the_same(text):
    text = text.replace("--batch 13", "--batch 8") + (" --batch 8" if "--batch" not in text else "")
    everyone, one = (
        simulate(job(8, text), CLUSTER, UNIT, all_ranks=all_ranks) for all_ranks in (True, False)
    )
    assert one.facts["played"] == f"one of {4 if 'pipe' in text else 8} replicas, which do the same"
    assert one.stop == pytest.approx(everyone.stop, rel=1e-3)
    assert one.sent[0].sum() == everyone.sent[0].sum()
    assert {span.rank for span in one.spans} == set(range(8))


def test_gradients_travel_under_backward():
    text = "--mode data --hidden 512,512,512"
    played = simulate(job(2, text), CLUSTER, UNIT)
    travel = [span for span in played.spans if span.kind == "flight" and span.bytes > 8]
    computed = max(span.stop for span in played.spans if span.kind == "backward")
    assert min(span.start for span in travel) < computed - 2  # a whole piece before the end
    assert played.stop < computed + 0.01


def test_ten_thousand_ranks_are_simulated(capsys):
    assert (
        main(
            [
                "--ranks",
                "10000",
                "--cluster",
                "ethernet-1g",
                "--mode",
                "data",
                "--batch",
                "10000",
                "--hidden",
                "512",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "10,000 ranks on 2,500 machines" in said
    assert "one of 10000 replicas, which do the same" in said


def test_the_command_says_how_long_and_writes_the_timeline(capsys, tmp_path):
    path = tmp_path / "timeline.json"
    text = f"--ranks 4 --cluster ethernet-100m --mesh data=2,pipe=2 {GPT} --json {path}"
    assert main(text.split()) == 0
    said = capsys.readouterr().out
    assert "a step takes" in said
    assert "rank 3" in said
    timeline = Timeline.from_dict(json.loads(path.read_text()))
    assert timeline.facts["seconds_per_step"] == pytest.approx(timeline.stop)
    assert np.count_nonzero(timeline.sent) > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--cluster nowhere", "there is no cluster 'nowhere'"),
        ("--ranks 0", "the number of ranks"),
        ("--ranks 6 --mesh data=2,pipe=2", "6 ranks cannot form data=2 x pipe=2"),
        ("--rank 4", "there is no option --rank"),
        ("schedule --schedule best", "invalid choice: 'best'"),
        ("schedule --chunks 2", "--chunks 2 needs --schedule interleaved"),
    ],
)
def test_a_mistake_is_one_sentence(capsys, text, said):
    assert main(text.split()) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_schedule_is_drawn_without_running_anything(capsys):
    assert main(["schedule", "--pipe", "2", "--microbatches", "3", "--schedule", "gpipe"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "rank 0   F0 F1 F2 .. .. .. B0 B0 B1 B1 B2 B2"
