"""`--check-every` finds replicas that part, parameters that stand still, rows that come twice, and else is silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minidist import data
from minidist.comm import PURPOSES, Communicator
from minidist.comm.threads import run_ranks
from minidist.data import loader
from minidist.errors import UserError
from minidist.train import mode_options
from minidist.train.arrangement import arrange
from minidist.train.keeping import Keeping
from minidist.train.loop import train
from minidist.train.options import parse
from minidist.train.setup import set_up

GUARD = PURPOSES.index("guard")


def run(words: str, ranks: int, plant: Callable[[Communicator, Any], None] | None = None) -> list[np.ndarray]:
    """Train 6 steps of digits with a check every 2; give what each rank sent under "guard"."""
    dataset = data.load("digits")

    def work(comm: Communicator) -> np.ndarray:
        options = parse(["--steps", "6", "--hidden", "12,9", "--quiet", "--check-every", "2", *words.split()])
        arrangement = arrange(options, comm.size)
        mode_options.settle(options, arrangement)
        setup = set_up(options, dataset, comm, arrangement, None)
        if plant:
            plant(comm, setup)
        history, *_ = train(options, dataset, setup, Keeping(options, arrangement, dataset, comm, ""))
        assert not history.sent[GUARD].any()  # no part of what was foretold
        return np.array([comm.counters["guard"]])

    return run_ranks(work, ranks)


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("", 1),
        ("", 3),
        ("--zero 1", 2),
        ("--zero 3 --batch 600", 2),  # two epochs
        ("--mode pipeline", 3),
        ("--mesh data=2,pipe=2 --batch 1", 4),
        ("--mesh data=2,tensor=2", 4),
        ("--mode averaging --average-every 3", 2),
        ("--mode averaging --average-every 8", 2),
    ],
)
def test_a_right_training_passes(words: str, ranks: int) -> None:
    sent = run(words, ranks)
    assert ranks == 1 or all(own[0, 1] > 0 for own in sent)


def after_step(setup: Any, spoil: Callable[[], None]) -> None:
    plain = setup.sync.step

    def step() -> float:
        norm = plain()
        spoil()
        return norm

    setup.sync.step = step


def part(comm: Communicator, setup: Any) -> None:
    """Let one weight of rank 1 go its own way."""
    if comm.rank == 1:
        parameter = setup.model.layers[1].weight
        after_step(setup, lambda: parameter.array.__setitem__((0, 0), parameter.array[0, 0] + 1e-6))


def stand_still(comm: Communicator, setup: Any) -> None:
    bias = setup.model.layers[0].bias
    kept = bias.array.copy()
    after_step(setup, lambda: bias.array.__setitem__(..., kept))


@pytest.mark.parametrize(
    ("words", "ranks", "plant", "sentence"),
    [
        (
            "",
            3,
            part,
            r"check after step 2: replicas are no longer equal: layers.1.weight has hash \w{8} on rank 0 and",
        ),
        ("--zero 1", 2, part, r"layers.1.weight has hash \w{8} on rank 0 and \w{8} on rank 1"),
        ("--mode averaging --average-every 2", 2, part, "replicas are no longer equal: layers.1.weight"),
        ("", 2, stand_still, "check after step 2: layers.0.bias did not move in 2 steps, though trainable"),
    ],
)
def test_what_goes_wrong_is_named(words: str, ranks: int, plant: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        run(words, ranks, plant)


@pytest.mark.parametrize(
    ("share", "batch", "sentence"),
    [
        (
            lambda rows, rank, size: np.array_split(rows, size)[0],
            "60",
            "replicas 0, 1, 2 read identical rows in epoch 1",
        ),
        (
            lambda rows, rank, size: np.array_split(rows[: len(rows) // 2], size)[rank],
            "600",
            r"rows \d+, .* and \d+ others were read by no replica in epoch 1",
        ),
        (
            lambda rows, rank, size: np.array_split(np.append(rows, rows[0]), size)[rank],
            "60",
            r"rows \d+, \d+ were read more than once in epoch 1 \(row \d+: 2 times\)",
        ),
    ],
    ids=["identical", "left out", "padded"],
)
def test_a_wrong_share_of_rows_is_named(
    monkeypatch: pytest.MonkeyPatch, share: Any, batch: str, sentence: str
) -> None:
    plain = loader.read

    def read(n: int, size: int, seed: int, epoch: int, rank: int, ranks: int) -> Any:
        return plain(n, size, seed, epoch, rank, ranks, share)

    monkeypatch.setattr(loader, "read", read)
    with pytest.raises(UserError, match=sentence):
        run(f"--batch {batch}", 3)
