"""A training that is killed again and again ends with the weights of one that is left alone, bit for bit.

pytest tests/long_chaos.py

Any rank, at any moment: while it starts, computes, waits, writes a checkpoint, or ends.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minidist.launch import mpiexec

OPTIONS = ["--epochs", "120", "--hidden", "64,32", "--every", "5", "--quiet"]
CASES = {
    "data": ([], 20),
    "zero": (["--zero", "2"], 5),
    "averaging": (["--mode", "averaging"], 5),
    "servers": (["--mode", "parameter-server", "--servers", "1"], 5),
    "stages": (["--mesh", "data=2,pipe=2"], 5),
}


def start(folder: Path, options: list[str]) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "minidist.launch",
        "-n",
        "4",
        "--max-restarts",
        "100",
        "-m",
        "minidist.train",
    ]
    outputs = ["--checkpoint", str(folder / "run"), "--json", str(folder / "result")]
    return subprocess.Popen(
        [*command, *OPTIONS, *options, *outputs],
        env={**os.environ, "CHAOS": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def ranks(folder: Path) -> list[int]:
    """Find the processes of a job's ranks."""
    found = []
    for pid, _, _ in mpiexec.processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            marked = f"CHAOS={folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if marked and words[1:3] == [b"-m", b"minidist.train"]:
            found.append(pid)
    return sorted(found)


@pytest.mark.parametrize("case", CASES)
def test_a_training_that_is_killed_again_and_again_ends_with_the_same_weights(case, tmp_path):
    options, kills = CASES[case]
    rng = random.Random(case)
    for name in ("alone", "killed"):
        (tmp_path / name).mkdir()
    began, alone = time.monotonic(), start(tmp_path / "alone", options)
    while alone.poll() is None and not list(tmp_path.glob("alone/run/step-*")):
        time.sleep(0.01)
    starting = time.monotonic() - began  # until the first checkpoint
    _, said = alone.communicate()
    assert alone.returncode == 0, said
    job = start(tmp_path / "killed", options)
    done = 0
    while done < kills and job.poll() is None:
        time.sleep(rng.uniform(0.1, 2.0) * starting)
        if alive := ranks(tmp_path / "killed"):
            os.kill(rng.choice(alive), signal.SIGKILL)
            done += 1
    _, said = job.communicate(timeout=300)
    assert job.returncode == 0, said
    assert done == kills, f"the training was over after {done} kills: give it more epochs"
    assert said.count("restart ") >= kills // 2  # a kill while the job is ending anyway is no further restart
    whole, killed = (json.loads((tmp_path / name / "result").read_text()) for name in ("alone", "killed"))
    assert killed["parameters_sha256"] == whole["parameters_sha256"]
    assert killed["loss_history"] == whole["loss_history"]
    assert os.listdir(tmp_path / "killed" / "run").count("lock") == 1
    assert len(os.listdir(tmp_path / "killed" / "run")) == 2  # the lock and the last checkpoint
