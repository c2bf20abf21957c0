"""What `--explain` prints, in every kind of arrangement, and that it trains nothing."""

from __future__ import annotations

import re

import numpy as np
import pytest

from minidist.comm import PURPOSES, Communicator
from minidist.comm.threads import run_ranks
from minidist.train.forecast import averages
from minidist.train.options import parse
from minidist.train.results import sent_so_far
from minidist.train.run import run
from minidist.train.stories import fold


def test_layers_are_named_once_and_in_runs() -> None:
    blocks = [f"blocks.{i}.{part}" for i in (0, 1, 2, 5) for part in ("norm1.gain", "widen.weight")]
    names = ["tokens.weight", *blocks, "norm.gain", "norm.bias", "tokens.weight"]
    assert fold(names) == "tokens, blocks.0-2, blocks.5, norm"
    assert fold(["layers.0.weight", "layers.0.bias"]) == "layers.0"
    assert fold([]) == ""


def test_averages_are_counted_with_the_one_at_the_end() -> None:
    assert [averages(steps, 4, 1) for steps in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]
    assert [averages(steps, 2, 1.5) for steps in (2, 5, 9, 10)] == [1, 2, 3, 4]  # after 2, 5, 9, 15 steps


OWN = "each replica divides its loss by its own number of targets and clips by its own norm"
WHOLE = "every loss is divided by the number of targets in the global batch"
CASES = [
    (1, "", [r"layers\.0-2 +rank 0", WHOLE, "rank 0 sends nothing"]),
    (
        10,
        "--batch 3",
        [r"data=0 +data=1 .* data=5 +\.\.\. +data=9", r"rank 0 .* rank 5 +\.\.\. +rank 9", WHOLE],
    ),
    (
        4,
        "--mode averaging",
        [OWN, r"in each average, after 8 steps \(58 times\)", "averages count each by its"],
    ),
    (
        3,
        "--mode parameter-server --slack 2",
        [OWN, "its update counts by its share", r"server +every bucket +rank 2"],
    ),
    (3, "--mode parameter-server", [WHOLE, "at the end"]),
    (4, "--mode parameter-server --servers 2", [r"server +part 1 of 2 of every bucket +rank 2"]),
    (2, "--zero 2", ["ZeRO 2: optimizer state and gradients are shared out over data", "buckets?, gathered"]),
    (
        4,
        "--mesh data=2,pipe=2 --zero 3 --schedule interleaved --hidden 40,30,20",
        [
            r"pipe=0 +layers\.\d; then layers\.\d +rank 0 +rank 2",
            "ZeRO 3: .* fetched to be read",
            r"data +weights +\d+ fetches by others, answered +\d",
            r"data +control +\d+ fetches, asked for +\d",
            "weights being read",
        ],
    ),
    (
        2,
        "--mode pipeline --schedule pipedream",
        [r"pipe=0 +F0 F1 \.\. \.\. B0 B0", r"pipe=1: idle 3 of 15 \(20%\)", "older weights"],
    ),
    (2, "--mode pipeline --microbatches 60", [r"\(too wide to draw: 183 units of time\)"]),
    (
        3,
        "--mode model --hidden 8",
        [
            r"tensor=0: layers\.0\.weight 3 of 8 columns, layers\.1\.weight 3 of 8 rows",
            r"tensor=2: .* 2 of 8 columns",
        ],
    ),
    (
        2,
        "--mode model --model gpt --sequence-parallel",
        [
            r"each along tensor: tokens\.weight 48 of 96 rows",
            r"2 of\s+4 heads",
            r"data\+tensor +gradient +1 bucket, summed",
            "for the loss over split classes",
        ],
    ),
]


@pytest.mark.parametrize(("ranks", "words", "lines"), CASES)
def test_explain_says_who_holds_and_sends_what(
    ranks: int, words: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def on_rank(comm: Communicator) -> np.ndarray:
        assert run(parse([*words.split(), "--explain", "--quiet"]), comm) == {}
        return sent_so_far(comm)

    sent = run_ranks(on_rank, ranks)
    text = capsys.readouterr().out
    assert text.startswith("\nwho holds what")
    for line in lines:
        assert re.search(line, text), (line, text)
    everybody = {int(rank) for rank in re.findall(r"rank (\d+)", text)}
    assert everybody == set(range(ranks)) or ranks > 8  # else some are left out
    for purpose in ("gradient", "activation"):  # nobody has begun
        assert not any(table[PURPOSES.index(purpose)].any() for table in sent)
