"""The main job, as its user starts it: what it computes, prints, writes and refuses."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minidist.comm.threads import run_ranks
from minidist.errors import UserError
from minidist.launch.mpiexec import find_mpiexec
from minidist.train.__main__ import main
from minidist.train.report import check_writable, write_json

REFERENCE = ["--dtype", "float64", "--optimizer", "sgd", "--momentum", "0.9", "--steps", "20"]


def start(ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command; 0 ranks: without mpiexec."""
    mpiexec = [find_mpiexec(), "-n", str(ranks)] if ranks else []
    command = [*mpiexec, sys.executable, "-m", "minidist.train", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def start_here(ranks: int, *options: str) -> list[int]:
    """Run the command on ranks that are threads of this process: in no time; give their exit codes."""
    return run_ranks(lambda comm: main(options), ranks)


def result_of(path: Path, ranks: int, *options: str) -> dict[str, Any]:
    done = start(ranks, *options, "--quiet", "--json", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("model", "batch", "ranks", "pieces"),
    [("mlp", 50, 4, 3), ("mlp", 50, 2, 1), ("cnn", 50, 3, 1), ("gpt", 5, 3, 2)],
)
def test_histories_equal_those_of_one_process(
    tmp_path: Path, model: str, batch: int, ranks: int, pieces: int
) -> None:
    options = [*REFERENCE, "--model", model, "--batch", str(batch)]
    if model == "gpt":  # a short text, because the accuracy is computed over a tenth of it
        text = tmp_path / "text.txt"
        text.write_text("All work and no play makes a dull text to learn from. " * 100)
        options += ["--data-dir", str(text), "--layers", "1", "--width", "32"]
    one = result_of(tmp_path / "one.json", 0, *options)
    many = result_of(tmp_path / "many.json", ranks, *options, "--accumulate", str(pieces))
    assert (one["world_size"], many["world_size"]) == (1, ranks)
    for history in ("loss_history", "grad_norm_history"):
        assert len(one[history]) == 20
        np.testing.assert_allclose(many[history], one[history], rtol=1e-12, atol=0)
    assert many["accuracy"] == one["accuracy"]


def test_the_same_command_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (result_of(tmp_path / f"{i}.json", 4, "--steps", "30") for i in range(2))
    assert first["parameters_sha256"] == second["parameters_sha256"]
    assert first["loss_history"] == second["loss_history"]


def test_json_holds_what_it_promises(tmp_path: Path) -> None:
    result = result_of(tmp_path / "run.json", 2, "--steps", "5")
    assert result["mode"] == "data"
    assert result["transport"] == "mpi"
    assert result["steps"] == len(result["loss_history"]) == len(result["grad_norm_history"]) == 5
    assert 0 < result["accuracy"] <= 1
    assert result["examples_per_second"] > 0
    assert result["seconds"] > 0
    for counters in (result["bytes_sent"], result["messages_sent"]):
        assert [sorted(rank) for rank in counters] == [["control", "gradient", "weights"]] * 2
    # On two ranks every all-reduce algorithm that moves the least sends each gradient once, in each step.
    assert {rank["gradient"] for rank in result["bytes_sent"]} == {5 * 4 * result["parameters"]}
    assert len(result["parameters_sha256"]) == 64


def test_one_rank_says_that_it_is_alone_and_how_to_start_more() -> None:
    done = start(0, "--steps", "3")
    assert done.returncode == 0, done.stderr
    assert "one rank (started without mpiexec)" in done.stdout
    assert "mpiexec -n 4 python -m minidist.train" in done.stdout


def test_progress_under_mpiexec_is_plain_lines_from_one_rank() -> None:
    done = start(2, "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stdout.count("examples/s   in communication") == 1
    assert "test accuracy" in done.stdout
    assert "rank 1" in done.stdout


def test_the_gpt_writes_when_asked() -> None:
    done = start(0, "--model", "gpt", "--steps", "2", "--sample", "40")
    assert done.returncode == 0, done.stderr
    written = done.stdout.split("the model writes:\n")[1]
    assert len(written) == 41  # and the newline that ends it


def test_a_reader_that_has_left_does_not_stop_the_training(tmp_path: Path) -> None:
    command = f"{sys.executable} -m minidist.train --steps 40 --json {tmp_path}/run.json | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (tmp_path / "run.json").exists()


def test_a_full_disk_under_the_output_does_not_stop_the_training(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minidist.train", "--steps", "20", "--json", str(tmp_path / "run.json")]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr == "nothing more can be printed (No space left on device); the training goes on\n"
    assert json.loads((tmp_path / "run.json").read_text())["steps"] == 20


def test_json_replaces_a_file_whole_and_leaves_links_and_pipes_what_they_are(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_text("old, and read-only")
    file.chmod(0o400)
    check_writable(str(file))
    write_json(str(file), {"new": 1})
    link.symlink_to(file)
    check_writable(str(link))
    write_json(str(link), {"new": 2})
    assert link.is_symlink()
    assert json.loads(file.read_text()) == {"new": 2}
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_json(str(pipe), {"new": 3})
    assert json.loads(os.read(reader, 1000)) == {"new": 3}
    os.close(reader)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]


def test_json_that_does_not_fit_on_the_disk_is_an_error_that_says_so() -> None:
    with pytest.raises(UserError, match="--json /dev/full could not be written: No space left on device"):
        write_json("/dev/full", {"some": "result"})


@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (4, "--mesh data=2,pipe=2 --schedule zero-bubble --batch 50 --accumulate 2 --epochs 1"),
        (3, "--mode parameter-server --slack none --batch 50 --epochs 1 --optimizer adamw"),
    ],
)
def test_the_counters_of_a_run_equal_the_prediction(tmp_path: Path, ranks: int, options: str) -> None:
    result = result_of(tmp_path / "run.json", ranks, *options.split())
    assert result["sent_in_steps"] == result["predicted"]
    assert [len(result["predicted"][what]) for what in ("messages", "bytes")] == [ranks, ranks]
    for in_all, in_steps in zip(result["bytes_sent"], result["sent_in_steps"]["bytes"], strict=True):
        assert all(0 <= sent <= in_all[purpose] for purpose, sent in in_steps.items())


def test_explain_draws_who_holds_what_and_trains_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert start_here(5, "--mesh", "data=2,pipe=2", "--sync", "parameter-server", "--explain") == [0] * 5
    text = capsys.readouterr().out
    assert "test accuracy" not in text
    for line in (
        r"who holds what +data=0 +data=1",
        r"pipe=0 +layers\.0 +rank 0 +rank 2",
        r"pipe=1 +layers\.1-2 +rank 1 +rank 3",
        r"server +every bucket +rank 4",
        r"pipe=0 +F0 F1 \.\. \.\. B0 B0 F2",
        r"pipe=1: idle 3 of 15 \(20%\), microbatches alive: at most 1",
        r"in each step, of 64 examples \(440 times\)",
        r"pipe +activation +outputs to the next stage +4 +32,768",
        r"servers +gradient +1 part, pushed +1 +66,560",
        r"in each step of all workers \(460 times\)",
        r"holds: weights 66,560, gradients 66,560 bytes",
        r"holds: weights 203,304, gradients that come 406,608, optimizer state 203,304 bytes",
    ):
        assert re.search(line, text), (line, text)


WRONG = {
    "ranks as an option": (["-n", "4"], "no option -n; mpiexec starts the ranks: mpiexec -n 4 python -m"),
    "a directory to write": (["--json", "/tmp"], "--json /tmp is a directory; name a file in it"),
    "an unknown option": (["--bacth", "3"], "there is no option --bacth, did you mean --batch?"),
    "no examples": (
        ["--batch", "0"],
        "argument --batch: got '0', but the global batch must be a whole number, 1",
    ),
    "not a number": (
        ["--lr", "nan"],
        "argument --lr: got 'nan', but the learning rate must be a finite number",
    ),
    "a negative rate": (["--lr", "-1"], "got '-1', but the learning rate must be a finite number, above 0"),
    "no steps": (["--steps", "0"], "the number of steps must be a whole number, 1 or more"),
    "a model that is not there": (["--model", "resnet"], "invalid choice: 'resnet'"),
    "a model that does not fit": (["--model", "gpt", "--data", "digits"], "give it --data text"),
    "momentum of adamw": (["--optimizer", "adamw", "--momentum", "0.9"], "leave it out"),
    "momentum of 1": (["--momentum", "1"], "0.9 is usual"),
    "a missing directory": (["--data", "mnist", "--data-dir", "/does/not/exist"], "/does/not/exist"),
    "nowhere to write": (["--json", "/does/not/exist/run.json"], "--json /does/not/exist/run.json"),
    "text without a gpt": (["--sample", "5"], "--sample needs --model gpt"),
    "a result of no training": (["--explain", "--json", "/tmp/x"], "leave --json out, or --explain"),
    "a mesh that cannot be": (
        ["--mesh", "data=2,tensor=3"],
        "4 ranks cannot form data=2 x tensor=3 (6); try data",
    ),
    "too many stages": (
        ["--mode", "pipeline", "--model", "cnn"],
        "makes 4 stages, and this model has 3 pieces",
    ),
    "too many ranks for the heads": (
        ["--mode", "model", "--model", "gpt", "--heads", "2"],
        "2 heads cannot be shared by tensor=3 ranks, for each needs at least one: try data=3,tensor=1",
    ),
    "divergence": (["--lr", "1e30", "--epochs", "1"], "the training diverged; try --lr 1e+29"),
}


ON_RANKS = {"a mesh that cannot be": 4, "too many stages": 4, "too many ranks for the heads": 3}


@pytest.mark.parametrize("what", [what for what in WRONG if what not in ON_RANKS])
def test_a_mistake_gets_one_sentence_and_exit_code_2(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, words = WRONG[what]
    assert main(options) == 2
    said = capsys.readouterr().err
    assert said.count(words) == 1, said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("what", ON_RANKS)
def test_what_does_not_fit_the_number_of_ranks_is_refused_on_all(what: str) -> None:
    options, words = WRONG[what]
    with pytest.raises(UserError, match=re.escape(words)):
        start_here(ON_RANKS[what], *options)


@pytest.mark.parametrize("what", ["no examples", "a missing directory", "divergence"])
def test_a_mistake_is_told_once_and_not_by_each_rank(what: str) -> None:
    options, words = WRONG[what]
    done = start(3, *options)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count(words) == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_fewer_examples_than_ranks_work_and_are_noted() -> None:
    done = start(4, "--batch", "3", "--steps", "4")
    assert done.returncode == 0, done.stderr
    assert "a batch of 3 leaves 1 of 4 replicas without work" in done.stdout


def test_ranks_with_different_options_are_refused() -> None:
    train = [sys.executable, "-m", "minidist.train", "--steps", "2"]
    command = [find_mpiexec(), "-n", "1", *train, ":", "-n", "1", *train, "--batch", "32"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "the options of rank 1 differ from those of rank 0" in done.stderr


def test_help_shows_eight_options_and_help_all_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    short = capsys.readouterr().out
    assert main(["--help-all"]) == 0
    long = capsys.readouterr().out
    shown = {word for word in short.split() if word.startswith("--")} - {"--help", "--help-all"}
    assert len(shown) == 8, shown
    for option in [
        "--data-dir",
        "--accumulate",
        "--optimizer",
        "--momentum",
        "--weight-decay",
        "--clip-norm",
        "--dtype",
        "--json",
        "--quiet",
    ]:
        assert option in long
        assert option not in short


def test_kernels_can_be_forced(tmp_path: Path) -> None:
    os.environ["MINIDIST_KERNELS"] = "numpy"
    try:
        assert result_of(tmp_path / "run.json", 2, "--steps", "2")["kernels"] == "numpy"
    finally:
        del os.environ["MINIDIST_KERNELS"]
