"""`--ranks`: everybody's time adds up and is shown once an epoch, and one rank that is always slow is named once."""

import json
import re
import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minidist.comm import Communicator
from minidist.comm.threads import run_ranks
from minidist.launch.terminal import Terminal
from minidist.split.whole import Whole
from minidist.trace.shares import Shares
from minidist.train import ranks as showing
from minidist.train import straggler
from minidist.train.__main__ import main
from minidist.train.straggler import Stragglers

LINE = re.compile(r"ranks  epoch (\d+): (.*)")
TIMES = re.compile(r"rank (\d) computes (\d+)%, communicates (\d+)%, idle (\d+)%")


@pytest.fixture
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "SECONDS", 0.0)  # exchange after every step
    monkeypatch.setattr(straggler, "SECONDS", 0.0)


@pytest.mark.usefixtures("_few_steps")
@pytest.mark.parametrize(
    ("words", "ranks", "workers"),
    [
        ("", 1, 1),
        ("", 3, 3),
        ("--mesh data=2,pipe=2", 4, 4),
        ("--mode averaging --trace {path}/trace.json", 2, 2),
        ("--mode parameter-server --slack 2", 3, 2),
    ],
)
def test_each_epoch_has_a_line_with_all_workers_time(
    words: str, ranks: int, workers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--ranks", "--epochs", "2", "--batch", "400", "--json", str(tmp_path / "run.json")]
    command += words.format(path=tmp_path).split()
    assert run_ranks(lambda comm: main(command), ranks) == [0] * ranks
    lines = LINE.findall(capsys.readouterr().out)
    assert [epoch for epoch, _ in lines] == ["1", "2"]
    for _, line in lines:
        times = [[int(number) for number in found] for found in TIMES.findall(line)]
        assert [rank for rank, *_ in times] == list(range(workers))
        assert all(99 <= sum(shares) <= 101 for _, *shares in times)
    result = json.loads((tmp_path / "run.json").read_text())
    assert result["sent_in_steps"] == result["predicted"]  # watching is no part of it


@pytest.mark.usefixtures("_few_steps")
def test_a_rank_that_is_always_slow_is_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(straggler, "STEPS", 2)
    real = Whole.forward

    def forward(self: Any, m: int, piece: Any) -> Any:
        if self.sync.mesh.everyone.rank == 1:
            time.sleep(0.15)
        return real(self, m, piece)

    monkeypatch.setattr(Whole, "forward", forward)
    run_ranks(lambda comm: main(["--ranks", "--steps", "9"]), 3)
    warnings = [line for line in capsys.readouterr().err.splitlines() if "straggler" in line]
    assert len(warnings) == 1
    assert "rank 1 is a straggler: its fastest steps compute" in warnings[0]


def test_only_a_rank_that_is_slow_beside_its_equals_and_for_long_is_a_straggler() -> None:
    def warnings(*stretches: list[float], alike: tuple[int, ...] = (0, 0, 0, 0)) -> int:
        look = Stragglers(alike).look
        return sum(look(np.array(step), 20, 1.0) is not None for step in stretches)

    equal, first, second = [1.0, 1.1, 0.9, 1.0], [3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 2.0]
    assert warnings(*[equal] * 9) == 0
    assert warnings(first, first) == 0
    assert warnings(first, first, equal, first, first) == 0
    assert warnings(first, second, first, second, first) == 0
    assert warnings(first, first, first) == 1
    assert warnings(*[second] * 9) == 1
    assert warnings(*[[3.0, 3.1, 1.0, 1.0]] * 9, alike=(0, 0, 1, 1)) == 0  # stages with different work
    assert warnings(*[[3.0, 1.0, 1.0, 1.0]] * 9, alike=(0, 1, 2, 3)) == 0


def test_time_is_added_up_as_computing_communicating_and_idle() -> None:
    now = 0.0

    def let_pass(seconds: float, result: Any = None) -> Any:
        nonlocal now
        now += seconds
        return result

    progress: Any = SimpleNamespace(
        running=[1],
        waiting_thread=None,
        seconds=0.0,
        start=lambda request: let_pass(1.0, request),
        advance=lambda: let_pass(2.0, True),
        idle=lambda progress, request, since: let_pass(4.0),
    )
    shares = Shares(progress, lambda: now)
    let_pass(10.0)
    progress.start(None)
    progress.advance()
    assert shares.read() == (10.0, 3.0, 0.0)
    progress.waiting_thread, began = (
        1,
        now,
    )  # a wait: two looks around in which nothing moves, then something does
    progress.advance()
    since = now
    for _ in range(2):
        progress.idle(progress, None, since)
        let_pass(0.5)
    progress.advance()
    progress.waiting_thread, progress.seconds = None, now - began
    assert shares.read() == (10.0, 3.0 + 4.5, 8.5)


def test_on_a_terminal_each_rank_has_a_bar(tmp_path: Path) -> None:
    file, screen = tmp_path / "progress", StringIO()
    terminal = Terminal(file, StringIO(), screen)
    facts = {"step": 1, "steps": 2, "epoch": 1, "loss": 0.5, "examples_per_second": 9.0, "communication": 0.2}
    for ranks in (None, [[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]):
        with open(file, "a") as out:
            out.write(json.dumps({**facts, "ranks": ranks}) + "\n")
        terminal.draw()
    terminal.close()
    shown = screen.getvalue()
    assert (
        "rank 0   ################========........  # compute  50%  = communication  25%  . idle  25%"
        in shown
    )
    assert "rank 1   ################################  # compute 100%" in shown


def test_without_the_option_nothing_is_followed() -> None:
    def run(comm: Communicator) -> bool:
        before = dict(vars(comm.progress))
        main(["--quiet", "--steps", "2"])
        return {"start", "advance"}.isdisjoint(vars(comm.progress)) and before["idle"] is comm.progress.idle

    assert run_ranks(run, 2) == [True, True]
