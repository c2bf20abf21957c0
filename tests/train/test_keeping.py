"""A training that was interrupted and goes on, on the same mesh and on others, beside one that was not."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minidist.comm import Communicator
from minidist.comm.threads import run_ranks
from minidist.errors import UserError
from minidist.train.options import parse
from minidist.train.run import run

PROSE = "All work and no play makes a dull text to learn from. " * 60
DIGITS = "--batch 300 --hidden 12,9,8,7 --dtype float64"  # 5 steps an epoch, the last one shorter
GPT = "--model gpt --layers 2 --width 12 --heads 3 --batch 5 --lr 0.01 --dtype float64"


@pytest.fixture(autouse=True, scope="module")
def _nobody_cuts_the_power() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def train(
    ranks: int, options: str, directory: Path | None = None, data: Path | None = None
) -> dict[str, Any]:
    """Train on threads; give what rank 0 has to show."""
    words = [*options.split(), "--quiet", "--json", "-"]
    words += ["--checkpoint", str(directory)] if directory else []
    words += ["--data-dir", str(data)] if data else []

    def one(comm: Communicator) -> dict[str, Any]:
        return run(parse(words), comm)

    return run_ranks(one, ranks)[0]


SAME_MESH = {
    "one process": (1, DIGITS),
    "data parallel, accumulated, clipped": (3, f"{DIGITS} --accumulate 2 --clip-norm 0.5"),
    "adamw": (2, f"{DIGITS} --optimizer adamw --lr 0.01"),
    "zero 1": (2, f"{DIGITS} --zero 1"),
    "zero 2": (3, f"{DIGITS} --zero 2 --optimizer adamw --lr 0.01"),
    "zero 3": (3, f"{DIGITS} --zero 3"),
    "averaging, between two averages": (
        3,
        f"{DIGITS} --mode averaging --average-every 4 --average-growth 1.5",
    ),
    "averaging, warming up": (2, f"{DIGITS} --mode averaging --warm-up 9"),
    "averaging, with an outer step": (2, f"{DIGITS} --mode averaging --average-every 3 --outer nesterov"),
    "parameter server": (3, f"{DIGITS} --mode parameter-server"),
    "two servers, one free worker": (3, f"{DIGITS} --mode parameter-server --servers 2 --slack none"),
    "pipeline": (2, f"{DIGITS} --mode pipeline --schedule interleaved --microbatches 2"),
    "pipedream": (3, f"{DIGITS} --mode pipeline --schedule pipedream"),
    "tensor parallel gpt, in pieces": (2, f"{GPT} --mode model --sequence-parallel"),
    "zero over a pipeline with tied weights": (4, f"{GPT} --mesh data=2,pipe=2 --zero 3"),
    "servers of a tensor parallel replica": (3, f"{GPT} --mesh tensor=2 --sync parameter-server"),
}


@pytest.fixture(scope="module")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "prose.txt"
    path.write_text(PROSE)
    return path


@pytest.mark.parametrize("what", SAME_MESH)
def test_resumed_on_the_same_mesh_it_is_bit_identical(tmp_path: Path, prose: Path, what: str) -> None:
    ranks, options = SAME_MESH[what]
    data = prose if "gpt" in options else None
    never = train(ranks, f"{options} --steps 11", None, data)
    train(ranks, f"{options} --steps 7 --every 3", tmp_path / "kept", data)  # in the middle of an epoch
    again = train(ranks, f"{options} --steps 11 --resume", tmp_path / "kept", data)
    assert again["parameters_sha256"] == never["parameters_sha256"]
    assert again["loss_history"] == never["loss_history"]
    assert again["grad_norm_history"] == never["grad_norm_history"]
    assert again["sent_in_steps"] == again["predicted"], "checkpoints are not counted among the steps"
    assert [path.name for path in (tmp_path / "kept").glob("step-*")] == ["step-00000011"]


DEEP = "--batch 300 --hidden 12,11,10,9,9,8,8 --dtype float64"  # 8 layers, none narrower than 8
MESHES = [
    f"data={data},pipe={pipe},tensor={tensor}"
    for data, pipe, tensor in product(range(1, 9), repeat=3)
    if data * pipe * tensor <= 8
]
PAIRS = [pair for pair in product(MESHES, MESHES) if pair[0] != pair[1]]  # 1406
if not os.environ.get("MINIDIST_ALL_PAIRS"):
    PAIRS = random.Random(2).sample(PAIRS, 5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give a function that gives what a mesh has saved after 4 steps."""
    directory = tmp_path_factory.mktemp("saved")

    def saved_by(mesh: str) -> Path:
        if not (directory / mesh).exists():
            train(ranks_of(mesh), f"{DEEP} --steps 4 --mesh {mesh}", directory / mesh)
        return directory / mesh

    return saved_by


def ranks_of(mesh: str) -> int:
    return int(np.prod([int(part.split("=")[1]) for part in mesh.split(",")]))


@pytest.fixture(scope="module")
def undisturbed() -> list[float]:
    return train(1, f"{DEEP} --steps 9")["loss_history"]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_resumed_on_another_mesh_the_next_losses_agree(
    tmp_path: Path, saved: Callable[[str], Path], undisturbed: list[float], before: str, after: str
) -> None:
    shutil.copytree(saved(before), tmp_path / "kept")
    again = train(ranks_of(after), f"{DEEP} --steps 9 --every 9 --resume --mesh {after}", tmp_path / "kept")
    np.testing.assert_allclose(again["loss_history"][4:], undisturbed[4:], rtol=1e-12, atol=0)


OTHER_SYNCS = [
    ((4, "--zero 3"), (2, "--zero 2")),
    ((3, "--mode parameter-server --servers 2"), (4, "--mesh data=2,pipe=2 --zero 1")),
    ((4, "--mesh tensor=2,data=2 --zero 3"), (4, "--mesh tensor=3 --sync parameter-server")),
]


@pytest.mark.parametrize(("before", "after"), OTHER_SYNCS)
def test_resumed_with_another_sync_that_sums_gradients_the_next_losses_agree(
    tmp_path: Path, before: tuple[int, str], after: tuple[int, str]
) -> None:
    never = train(1, f"{DIGITS} --steps 9")
    train(before[0], f"{DIGITS} --steps 4 {before[1]}", tmp_path)
    again = train(after[0], f"{DIGITS} --steps 9 --resume {after[1]}", tmp_path)
    np.testing.assert_allclose(again["loss_history"][4:], never["loss_history"][4:], rtol=1e-12, atol=0)


def test_averaging_goes_on_with_another_number_of_replicas_from_the_mean(tmp_path: Path) -> None:
    averaging = f"{DIGITS} --mode averaging --average-every 100"
    ended = train(3, f"{averaging} --steps 4", tmp_path)  # what it ends with is the mean of its replicas
    again = train(2, f"{averaging} --steps 4 --resume", tmp_path)
    assert again["accuracy"] == ended["accuracy"]
    assert len(train(2, f"{averaging} --steps 6 --resume", tmp_path)["loss_history"]) == 6


WRONG = {
    "nothing to resume": ("--resume", "there is no checkpoint in", "leave --resume out to begin"),
    "a directory in use": ("", "has a checkpoint of step 2: go on from it with --resume, or name another"),
    "another rate": ("--resume --lr 0.3", "was trained with --lr 0.1, not 0.3: go on as it was begun"),
    "another model": ("--resume --hidden 12,9", "with --hidden 12,9,8,7, not 12,9"),
    "another rule": ("--resume --mode averaging", "was trained by sum of gradients, not by averaging"),
    "fewer steps": ("--resume --steps 1", "the checkpoint is of step 2, and the training ends with step 1"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_go_on_is_refused_in_one_sentence_and_the_checkpoint_stays(
    tmp_path: Path, what: str
) -> None:
    options, *words = WRONG[what]
    if what != "nothing to resume":
        train(1, f"{DIGITS} --steps 2", tmp_path / "kept")
    with pytest.raises(UserError) as raised:
        train(2, f"{DIGITS} --steps 3 {options}", tmp_path / "kept")
    for part in words:
        assert part in str(raised.value)
    if what != "nothing to resume":
        assert len(train(1, f"{DIGITS} --steps 3 --resume", tmp_path / "kept")["loss_history"]) == 3


def test_other_data_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text(PROSE)
    train(1, f"{GPT} --steps 1", tmp_path / "kept", text)
    text.write_text(PROSE.replace("dull", "fine"))
    with pytest.raises(UserError, match=r"was trained on data of sha256 [0-9a-f]{12}, not [0-9a-f]{12}"):
        train(1, f"{GPT} --steps 2 --resume", tmp_path / "kept", text)


def test_a_job_that_the_launcher_starts_again_begins_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIDIST_RESTART", "1")
    assert train(1, f"{DIGITS} --steps 3 --resume", tmp_path / "kept")["steps"] == 3


def test_checkpoints_without_a_directory_are_refused() -> None:
    with pytest.raises(UserError, match="--every belongs to --checkpoint DIR"):
        parse(["--every", "3"])
