"""Who does what, and the sentences for meshes that do not fit: before anything is loaded or sent."""

from __future__ import annotations

import re

import numpy as np
import pytest

from minidist.comm import Communicator
from minidist.comm.threads import run_ranks
from minidist.errors import UserError
from minidist.train.arrangement import Arrangement, arrange
from minidist.train.options import parse
from minidist.train.results import sent_so_far
from minidist.train.run import run


@pytest.mark.parametrize(
    ("words", "ranks", "expected"),
    [
        ("", 3, Arrangement({"data": 3}, "data", "data")),
        ("", 1, Arrangement({"data": 1}, "data", "data")),
        ("--mode model", 4, Arrangement({"data": 1, "tensor": 4}, "data", "model")),
        ("--mode pipeline", 4, Arrangement({"data": 1, "pipe": 4}, "data", "pipeline")),
        ("--mode averaging", 4, Arrangement({"data": 4}, "averaging", "averaging")),
        ("--mode parameter-server", 4, Arrangement({"data": 3}, "parameter-server", "parameter-server", 1)),
        (
            "--mode parameter-server --servers 2",
            4,
            Arrangement({"data": 2}, "parameter-server", "parameter-server", 2),
        ),
        ("--mesh pipe=2,data=2", 4, Arrangement({"data": 2, "pipe": 2}, "data", "mesh")),
        ("--mesh tensor=2,pipe=2", 4, Arrangement({"data": 1, "pipe": 2, "tensor": 2}, "data", "mesh")),
        (
            "--mesh data=2,pipe=2 --sync parameter-server",
            5,
            Arrangement({"data": 2, "pipe": 2}, "parameter-server", "mesh", 1),
        ),
    ],
)
def test_every_rank_gets_a_place(words: str, ranks: int, expected: Arrangement) -> None:
    found = arrange(parse(words.split()), ranks)
    assert found == expected
    assert found.workers + found.servers == ranks
    # The axes come in the order of the mesh, whatever order they were given in.
    assert list(found.axes) == [axis for axis in ("data", "pipe", "tensor") if axis in found.axes]


def test_an_arrangement_can_be_said_in_a_few_words() -> None:
    assert arrange(parse([]), 1).describe() == "data parallel (one rank)"
    assert arrange(parse(["--mesh", "data=2,pipe=2"]), 4).describe() == "data=2 x pipe=2"
    served = arrange(parse(["--mesh", "data=2", "--sync", "parameter-server", "--servers", "2"]), 4)
    assert served.describe().endswith("(data=2), 2 servers")


MISTAKES = [
    (
        4,
        "--mesh data=2,tensor=3",
        "4 ranks cannot form data=2 x tensor=3 (6); try data=2,tensor=2 or data=1,tensor=4 or data=4,tensor=1, or "
        "start 6 ranks",
    ),
    (
        4,
        "--mode pipeline --model cnn",
        "pipe=4 with 1 chunk makes 4 stages, and this model has 3 pieces to share out; try pipe=3 with 1 chunk or "
        "pipe=2 with 1 chunk, or data=2,pipe=2 on as many ranks, or a deeper model",
    ),
    (
        3,
        "--mode pipeline --model gpt --layers 2 --schedule interleaved",
        "pipe=3 with 2 chunks makes 6 stages, and this model has 4 pieces to share out; try pipe=3 with 1 chunk",
    ),
    (
        4,
        "--mode model --model gpt --heads 2",
        "2 heads cannot be shared by tensor=4 ranks, for each needs at least one: try data=2,tensor=2, or start "
        "fewer ranks (tensor=2), or take 4 heads",
    ),
    (
        4,
        "--mesh data=2,tensor=2 --hidden 1",
        "1 outputs of layer 0 cannot be shared by tensor=2 ranks, for each needs at least one: try data=4,tensor=1",
    ),
    (2, "--mode model --model cnn", "a cnn cannot be shared out by tensors, only an mlp or a gpt can"),
    (
        2,
        "--mode model --sequence-parallel",
        "sequence parallelism cuts the time of a gpt, and an mlp has none",
    ),
    (1, "--model gpt --width 130", "--width 130 cannot be shared by 4 heads; take a multiple of 4"),
    (
        2,
        "--sync parameter-server --servers 2",
        "2 ranks cannot be 2 servers and at least one worker: start 3 ranks or more",
    ),
    (
        4,
        "--mesh data=4 --sync parameter-server",
        "3 ranks cannot form data=4 (4); try data=3, or start 4 ranks",
    ),
    (2, "--servers 1", "--servers 1 belongs to --mode parameter-server; with --sync data leave it out"),
    (
        2,
        "--mode data --mesh data=2",
        "--mode data already says what --mesh says: give --mode, or --mesh and --sync",
    ),
    (2, "--mode data --sync averaging", "--mode data already says what --sync says"),
    (
        2,
        "--mesh rows=2",
        "--mesh is 'rows=2'; expected sizes for the axes data, pipe, tensor, each at most once",
    ),
    (2, "--mesh data=two", "--mesh is 'data=two'; expected sizes for the axes"),
    (2, "--mesh data=2,data=1", "--mesh is 'data=2,data=1'; expected sizes for the axes"),
    (2, "--mesh data=0", "--mesh is 'data=0'; expected sizes for the axes"),
]


@pytest.mark.parametrize(("ranks", "words", "sentence"), MISTAKES)
@pytest.mark.parametrize("explain", ["", "--explain"])
def test_what_does_not_fit_is_refused_before_anything_is_read_or_sent(
    ranks: int, words: str, sentence: str, explain: str
) -> None:
    def on_rank(comm: Communicator) -> np.ndarray:
        options = parse(f"{words} {explain}".split())
        if options.data == "text":
            options.data_dir = "/does/not/exist"  # who reads it says so
        with pytest.raises(UserError, match=re.escape(sentence)):
            run(options, comm)
        return sent_so_far(comm)

    assert not np.any(run_ranks(on_rank, ranks))
