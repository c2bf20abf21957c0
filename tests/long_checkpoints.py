"""Checkpoints under real kills, a really full disk, and between all meshes; not part of plain `pytest`.

pytest tests/long_checkpoints.py

A run that nobody disturbs notes the sha256 of all that it saves after each step. Then others are killed, by SIGKILL: at
every call that changes the disk, and 300 times at a random moment; each goes on where the last one was killed. What the
newest checkpoint then holds is, to the last bit, what the undisturbed run had after that step.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minidist.checkpoint import manifest
from minidist.comm.threads import run_ranks
from minidist.launch.mpiexec import find_mpiexec
from minidist.train import keeping
from minidist.train.options import parse
from minidist.train.run import run

STEPS = 3000
OPTIONS = f"--batch 300 --hidden 64,32 --optimizer adamw --lr 0.01 --steps {STEPS} --every 1 --quiet"
ENOUGH = 150  # steps: more than a run makes before it is killed
Rows = dict[int, list[list[object]]]  # by step
KILLS = int(os.environ.get("MINIDIST_KILLS", "300"))


def content(directory: Path) -> tuple[int, list[list[object]]]:
    """Give the step and the sha256 of everything that a checkpoint holds, checked by the manifest's own."""
    found = manifest.parse((directory / manifest.NAME).read_text())
    rows = [[row["slot"], row["name"], row["range"], row["sha256"]] for row in found["tensors"]]
    return found["step"], sorted(rows, key=repr)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Rows]:
    """By number of ranks and step: what is saved."""
    return {ranks: undisturbed_run(tmp_path_factory.mktemp("undisturbed"), ranks) for ranks in (1, 2)}


def undisturbed_run(path: Path, ranks: int) -> Rows:
    seen: Rows = {}
    saving = keeping.Keeping.save

    def save(self: keeping.Keeping, step: int) -> bool:
        done = saving(self, step)
        if self.comm.rank == 0:
            assert self.directory is not None
            saved, rows = content(self.directory.of(step))
            seen[saved] = rows
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping.Keeping, "save", save)
        words = [*OPTIONS.split(), "--checkpoint", str(path), "--steps", str(ENOUGH), "--json", "-"]
        run_ranks(lambda comm: run(parse(words), comm), ranks)
    return seen


def newest(path: Path) -> Path | None:
    steps = [
        found for found in path.glob("step-*") if (found / manifest.NAME).exists() and found.suffix != ".tmp"
    ]
    return max(steps, default=None)


def loads(path: Path) -> int:
    """Resume for no further step, which reads and checks every byte; give the step."""
    found = newest(path)
    assert found is not None
    step = content(found)[0]
    words = [*OPTIONS.split(), "--checkpoint", str(path), "--resume", "--steps", str(step), "--json", "-"]
    result = run_ranks(lambda comm: run(parse(words), comm), 1)[0]
    assert len(result["loss_history"]) == step
    return step


def ranks_below(pid: int) -> list[int]:
    """List the processes below an mpiexec that are ranks: those that have started none themselves."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    below = {pid}
    for _ in range(3):
        below |= {child for child, parent in parents.items() if parent in below}
    return [child for child in below if child not in parents.values() and child != pid]


@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_at_random_moments_the_newest_checkpoint_is_bit_exact(
    tmp_path: Path, undisturbed: dict[int, Rows], ranks: int
) -> None:
    draw, environ = random.Random(ranks), {**os.environ, "MINIDIST_RESTART": "1"}
    kills, moved, path = 0, 0, tmp_path / "0"
    while kills < (KILLS * 5 // 6 if ranks == 1 else KILLS // 6):
        before = newest(path)
        if before is not None and content(before)[0] > 40:
            path = tmp_path / str(kills)
            before = None
        mpiexec = [find_mpiexec(), "-n", str(ranks)] if ranks > 1 else []
        command = [*mpiexec, sys.executable, "-m", "minidist.train", *OPTIONS.split()]
        job = subprocess.Popen(
            [*command, "--checkpoint", str(path), "--resume"],
            env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while newest(path) == before and time.monotonic() < deadline:  # until it saves
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.1))
        victims = [job.pid] if ranks == 1 else ranks_below(job.pid)
        os.kill(draw.choice(victims), signal.SIGKILL)
        job.wait(30)
        kills += 1
        found = newest(path)
        assert found is not None
        step, rows = content(found)
        assert rows == undisturbed[ranks][step]
        moved += found != before
        if kills % 10 == 0:
            assert loads(path) == step
    assert moved > kills // 2


def test_killed_at_every_call_that_changes_the_disk_the_newest_checkpoint_is_bit_exact(
    tmp_path: Path, undisturbed: dict[int, Rows]
) -> None:
    program = """
import os, signal, sys
from minidist.train import keeping
from minidist.train.__main__ import main
calls, at = 0, int(sys.argv.pop(1))
def watched(original):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    return call
saving = keeping.Keeping.save
def save(self, step):
    if step == 2:
        for name in ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir"):
            setattr(os, name, watched(getattr(os, name)))
    return saving(self, step)
keeping.Keeping.save = save
sys.exit(main())
"""
    at, steps = 0, []
    while True:
        at += 1
        path = tmp_path / str(at)
        words = [*OPTIONS.split(), "--steps", "2", "--checkpoint", str(path)]
        done = subprocess.run(
            [sys.executable, "-c", program, str(at), *words], capture_output=True, timeout=60
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        found = newest(path)
        assert found is not None
        step, rows = content(found)
        assert rows == undisturbed[1][step]
        assert loads(path) == step
        steps.append(step)
    assert len(steps) > 10
    assert set(steps) == {1, 2}


def test_a_limit_on_the_size_of_files_is_said_and_the_training_goes_on(tmp_path: Path) -> None:
    words = [
        *OPTIONS.split(),
        "--steps",
        "3",
        "--checkpoint",
        str(tmp_path / "kept"),
        "--json",
        str(tmp_path / "json"),
    ]

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    command = [sys.executable, "-m", "minidist.train", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=limit)
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert len(said) == 3
    assert "could not save step 1 in " in said[0]
    assert "File too large (needed " in said[0]
    assert said[0].endswith("; there is none yet; the training goes on")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["lock"]
    assert json.loads((tmp_path / "json").read_text())["steps"] == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_said_with_what_is_needed_and_what_is_free(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(disk)], check=False
    ).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        path = disk / "kept"
        first = [*OPTIONS.split(), "--steps", "1", "--checkpoint", str(path)]
        subprocess.run([sys.executable, "-m", "minidist.train", *first], check=True, timeout=60)
        step, rows = content(path / "step-00000001")
        (disk / "ballast").write_bytes(b"x" * (shutil.disk_usage(disk).free - 60_000))
        more = [*OPTIONS.split(), "--steps", "2", "--checkpoint", str(path), "--resume"]
        command = [sys.executable, "-m", "minidist.train", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "could not save step 2 in" in done.stderr
        assert "No space left on device (needed " in done.stderr
        assert "; step 1 is intact; the training goes on" in done.stderr
        assert content(path / "step-00000001") == (step, rows)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
