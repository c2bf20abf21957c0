"""A recorded run: every moment of every rank is in a span, every message is an arrow, every byte is counted."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minidist.comm import Communicator
from minidist.comm.threads import run_ranks
from minidist.errors import UserError
from minidist.trace import chrome
from minidist.trace.clocks import FEW, compare_clocks
from minidist.trace.gather import gather
from minidist.trace.record import STEPS as LONG
from minidist.trace.record import Recorder
from minidist.trace.timeline import COMPUTES, FLIGHT, Timeline
from minidist.train.__main__ import main

STEPS = 3


def trained(path: Path, ranks: int, *options: str, trace: bool = True) -> tuple[Timeline, dict[str, Any]]:
    command = ["--quiet", "--steps", str(STEPS), "--batch", "30", "--json", str(path / "run.json"), *options]
    command += ["--trace", str(path / "trace.json")] if trace else []
    assert run_ranks(lambda comm: main(command), ranks) == [0] * ranks
    result = json.loads((path / "run.json").read_text())
    return chrome.read(path / "trace.json") if trace else Timeline(ranks), result


MODES = {
    "data": (2, ()),
    "interleaved": (2, ("--mode", "pipeline", "--microbatches", "3", "--schedule", "interleaved")),
    "zero-bubble": (3, ("--mode", "pipeline", "--schedule", "zero-bubble", "--recompute")),
    "pipedream": (2, ("--mode", "pipeline", "--schedule", "pipedream")),
    "tensor": (2, ("--mode", "model")),
    "averaging": (2, ("--mode", "averaging", "--average-every", "2")),
    "parameter-server": (3, ("--mode", "parameter-server")),
    "zero": (3, ("--zero", "3", "--accumulate", "2")),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_moment_every_message_and_every_byte_of_a_training_is_there(tmp_path: Path, mode: str) -> None:
    ranks, options = MODES[mode]
    timeline, result = trained(tmp_path, ranks, *options)
    _, without = trained(tmp_path, ranks, *options, trace=False)
    assert result["loss_history"] == without["loss_history"]
    assert result["parameters_sha256"] == without["parameters_sha256"]

    sent = result["sent_in_steps"]
    assert sent == without["sent_in_steps"]
    assert timeline.sent.sum(axis=1).tolist() == [sum(of.values()) for of in sent["bytes"]]
    assert not timeline.sent.diagonal().any()
    messages = sum(sum(of.values()) for of in sent["messages"])
    shared = sum(of["gradient"] for of in sent["messages"]) if result["shared_memory"] else 0
    # ZeRO's shelves begin to listen for their first questions before the recording begins.
    before = ranks * (ranks - 1) if mode == "zero" else 0
    assert len(timeline.flows) == messages - shared - before
    assert all(0 <= flow.sent <= flow.received <= timeline.stop for flow in timeline.flows)

    seconds = sum(timeline.seconds().values())
    for rank in range(ranks):
        track = [span for span in timeline.spans if span.rank == rank and span.kind != FLIGHT]
        whole = max(span.stop for span in track) - min(span.start for span in track)
        assert seconds[rank] == pytest.approx(whole)
        outer = []
        for span in sorted(track, key=lambda span: (span.start, -span.stop)):
            while outer and outer[-1].stop <= span.start:
                outer.pop()
            assert not outer or span.stop <= outer[-1].stop, (outer[-1], span)
            outer.append(span)
        assert {span.step for span in track} <= {None, *range(1, STEPS + 1)}
    assert {span.kind for span in timeline.spans} >= {"forward", "backward", "update", "idle"}
    assert timeline.facts["steps"] == [1, STEPS]


def test_a_pipeline_says_which_microbatch_chunk_and_layer(tmp_path: Path) -> None:
    timeline, _ = trained(tmp_path, *MODES["interleaved"][:1], *MODES["interleaved"][1])
    for kind in ("forward", "backward"):
        own = [span for span in timeline.spans if span.kind == kind and span.rank == 1]
        boxes = {(span.step, span.microbatch, span.chunk) for span in own if span.layer is None}
        assert boxes == {(s, m, c) for s in range(1, STEPS + 1) for m in range(3) for c in range(2)}
        assert {span.layer for span in own if span.layer} == {"layers.1", "layers.3"}
    received = [span for span in timeline.spans if span.name == "recv" and span.rank == 1 and span.bytes]
    assert {span.microbatch for span in received} == {0, 1, 2}
    assert {span.peer for span in received} == {0}
    assert {(flow.source, flow.dest) for flow in timeline.flows} == {(0, 1), (1, 0)}


def test_after_some_steps_nothing_is_written_down_but_bytes_are_counted(tmp_path: Path) -> None:
    options = ["--mode", "parameter-server", "--steps", str(LONG + 3)]
    timeline, result = trained(tmp_path, 3, *options)
    assert timeline.facts["steps"] == [1, LONG]
    assert timeline.facts["of_steps"] == LONG + 3
    assert {span.step for span in timeline.spans if span.name.startswith("step")} == {*range(1, LONG + 1)}
    assert timeline.sent.sum() == sum(sum(of.values()) for of in result["sent_in_steps"]["bytes"])
    assert max(flow.received for flow in timeline.flows) <= timeline.stop


def test_after_the_written_steps_small_sums_are_made_at_once_again_and_are_still_counted() -> None:
    def job(comm: Communicator) -> None:
        recorder, loop = Recorder(comm, steps=1), SimpleNamespace(step=lambda: None)
        recorder.mark_steps(loop, "step")
        shared = comm.allocate_shared(300)
        comm.endpoint.looks = 10**8  # until the other thread has come
        with recorder:
            for at_once in [False] + 10 * [True]:
                loop.step()
                assert comm.progress.at_once == at_once
                comm.all_reduce(shared, out=shared)
        assert {span[4] for span in recorder.spans} == {1}
        # In each sum half of the other's vector, 1200 bytes, is read, and as much is written.
        assert sum(recorder.messages.sent) == comm.counters["user"][1] == 11 * 2400

    run_ranks(job, 2)


def test_backward_goes_through_the_layers_last_one_first(tmp_path: Path) -> None:
    timeline, _ = trained(tmp_path, 1, "--accumulate", "2")
    for kind, order in (("forward", [0, 1, 2]), ("backward", [2, 1, 0])):
        spans = [span for span in timeline.spans if span.kind == kind and span.layer]
        spans.sort(key=lambda span: span.start)
        assert [span.layer for span in spans] == [f"layers.{n}" for _ in range(2 * STEPS) for n in order]


def test_clocks_that_differ_by_seconds_and_drift_are_brought_together() -> None:
    origin = time.perf_counter()

    def job(comm: Communicator) -> tuple[Timeline | None, Recorder]:
        speed, start = 1 + 1e-3 * comm.rank, 1000.0 * comm.rank
        recorder = Recorder(comm, clock=lambda: start + speed * (time.perf_counter() - origin))
        with recorder:
            for _ in range(3):
                comm.all_reduce(np.ones(3))
                time.sleep(0.05)
        return gather(recorder), recorder

    told = run_ranks(job, 3)
    timeline = told[0][0]
    assert timeline is not None
    for rank, (_, recorder) in enumerate(told):
        for moment in recorder.moments:
            true = (moment.time - 1000.0 * rank) / (1 + 1e-3 * rank) + 0.0
            assert abs(moment.time + moment.offset - true) <= moment.round_trip / 2 + 1e-6
    clock = timeline.facts["clock"]
    assert clock["of"] == "rank 0"
    assert clock["seconds_behind_at_first"] == pytest.approx([0, -1000, -2000], abs=1)
    wrong = 2 * max(clock["wrong_by_at_most"]) + 1e-4
    ends = [[s.stop for s in timeline.spans if s.rank == r and s.kind == "communication"] for r in range(3)]
    assert np.ptp(ends, axis=0).max() < 0.04 + wrong  # they end together: the last rank's start lets all end


def test_clocks_that_agree_are_compared_a_few_times_only() -> None:
    def job(comm: Communicator) -> tuple[float, int]:
        looks = iter(range(1000))
        moment = compare_clocks(comm, lambda: time.perf_counter() + 0 * next(looks))
        return moment.offset, next(looks)

    assert run_ranks(job, 3) == [(0.0, 4 * FEW + 1), (0.0, 2 * FEW), (0.0, 2 * FEW)]


def test_of_a_long_run_the_steps_are_kept_that_all_ranks_have_in_full() -> None:
    class Loop:
        def step(self, comm: Communicator) -> None:
            for _ in range(1 + comm.rank):
                comm.alone("self").barrier()
            comm.barrier()

    def job(comm: Communicator) -> Timeline | None:
        recorder, loop = Recorder(comm, steps=200, most=50), Loop()
        recorder.mark_steps(loop, "step")
        with recorder:
            for _ in range(100):
                loop.step(comm)
        return gather(recorder)

    timeline = run_ranks(job, 2)[0]
    first, last = timeline.facts["steps"]
    assert 80 < first < last == 100
    assert timeline.facts["dropped_steps"] == first - 1
    assert min(span.start for span in timeline.spans) == 0
    for rank in range(2):
        steps = [span.step for span in timeline.spans if span.rank == rank and span.kind in COMPUTES]
        assert steps == list(range(first, last + 1))


def test_nothing_is_left_on_what_was_recorded() -> None:
    def job(comm: Communicator) -> bool:
        before = [*vars(comm.progress)], comm.progress.idle, comm.new_channel
        with Recorder(comm):
            comm.barrier()
        return before == ([*vars(comm.progress)], comm.progress.idle, comm.new_channel)

    assert run_ranks(job, 2) == [True, True]


def test_a_path_that_cannot_be_written_is_refused_before_the_training(tmp_path: Path) -> None:
    for path, why in ((tmp_path, "is a directory"), (tmp_path / "no" / "x.json", "there is no directory")):
        with pytest.raises(UserError, match=f"--trace .*{why}"):
            run_ranks(lambda comm, path=path: main(["--quiet", "--trace", str(path)]), 2)
