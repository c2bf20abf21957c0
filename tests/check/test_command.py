"""The command reads a student's file, says its verdict, and has an exit code for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from minidist.check.__main__ import main

STEP = """
import numpy as np
from minidist.autograd import ops
from minidist.data import loader
from minidist.models import MLP
from minidist.nn import flatten
from minidist.optim import SGD


def build(comm):
    model = MLP([64, 8, 10], seed=0)
    return model, SGD(flatten(model), lr=0.1)


def step(comm, state, inputs, labels):
    model, optimizer = state
    mine = loader.share(np.arange(len(inputs)), comm.rank, comm.size)
    for p in model.parameters():
        p.zero_grad()
    ops.cross_entropy(model(inputs[mine]), labels[mine], COUNT).backward()
    for p in model.parameters():
        p.grad = comm.all_reduce(p.grad)
    optimizer.step()
"""


def verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str) -> tuple[int, str]:
    file = tmp_path / "mystep.py"
    file.write_text(text)
    code = main([str(file), *options])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_a_right_step_is_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = verdict(tmp_path, capsys, STEP.replace("COUNT", "len(inputs)"), "--ranks", "3")
    assert (code, said) == (0, "ok: 3 ranks do what one process does, in 3 steps of 12 and of 11 examples\n")


def test_a_wrong_step_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = verdict(tmp_path, capsys, STEP.replace("COUNT", "len(mine)"))
    assert code == 1
    assert "step 1, rank 0 of 4, backward: the gradient of layers.1.bias" in said
    assert "4.000 times the one-process gradients on every parameter: summed, not averaged?" in said


def test_a_step_that_raises_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = STEP.replace("COUNT", "len(inputs)").replace("optimizer.step()", "assert comm.rank != 1")
    code, said = verdict(tmp_path, capsys, text)
    assert code == 1
    assert "on 2 ranks the step did not come to its end" in said
    assert "AssertionError" in said


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("build = step = 1", [], "defines no build and no step"),
        (STEP, ["--ranks", "1"], "--ranks is '1'; expected numbers from 2 up"),
        (STEP, ["--batch", "2"], "--batch is 2; expected 3 or more"),
    ],
)
def test_a_mistake_in_the_command_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, options: list[str], sentence: str
) -> None:
    code, said = verdict(tmp_path, capsys, text, *options)
    assert code == 2
    assert sentence in said
    assert said.count("\n") == 1
