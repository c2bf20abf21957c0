"""A checkpoint is whole or not there, whatever happens while it is written, and is loaded as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minidist.checkpoint import Directory, disk, manifest
from minidist.comm import Communicator, Mesh
from minidist.comm.texts import broadcast_text
from minidist.comm.threads import run_ranks, world_of_one
from minidist.errors import UserError
from minidist.models import MLP
from minidist.nn import flatten
from minidist.optim import SGD, AdamW
from minidist.sync.data_parallel import DataParallel
from minidist.sync.zero import Zero

CALLS = ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir")


@pytest.fixture(autouse=True)
def _nobody_cuts_the_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fsync cost nothing: a kill does not lose what was written."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Training:
    """A sync whose weights and optimizer state are some function of the step."""

    def __init__(
        self,
        comm: Communicator,
        sizes: tuple[int, ...] = (6, 5, 3),
        rule: Any = AdamW,
        kind: Any = DataParallel,
    ) -> None:
        self.comm, self.groups = comm, flatten(MLP(list(sizes), seed=1, dtype=np.float64))
        self.sync = kind(Mesh(comm, data=comm.size), self.groups, rule(self.groups, lr=0.1))

    def to_step(self, step: int) -> None:
        self.sync.optimizer.steps = step
        for number, piece in enumerate(self.sync.snapshot().pieces):
            piece.array[...] = np.arange(piece.start, piece.stop) + 1000.0 * number + 0.1 * step

    def numbers(self) -> list[Any]:
        """All of its state, copied."""
        arrays = [piece.array.tolist() for piece in self.sync.snapshot().pieces]
        return [self.sync.optimizer.steps, arrays]


def at_step(step: int) -> list[Any]:
    training = Training(world_of_one())
    training.to_step(step)
    return training.numbers()


def load(path: Path) -> tuple[int, list[Any]]:
    """Load the newest checkpoint in one process."""
    training = Training(world_of_one())
    with Directory(training.comm, path) as directory:
        found = directory.find()
        training.sync.restore(found)
    return found.step, training.numbers()


@contextlib.contextmanager
def hooked(hook: Callable[[str, Callable[..., Any]], Any]) -> Iterator[None]:
    """Let `hook(name, call)` stand in the way of whatever changes a disk; `call()` does it."""
    originals = {name: getattr(os, name) for name in CALLS}

    def wrapped(name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: hook(name, lambda: originals[name](*args, **kwargs))

    try:
        for name in CALLS:
            setattr(os, name, wrapped(name))
        yield
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


def test_killed_at_any_boundary_the_newest_committed_checkpoint_loads_bit_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "CHUNK", 400)  # so that there are moments in the middle of a file
    training = Training(world_of_one())
    kept = tmp_path / "kept"
    moments: list[dict[str, bytes | None]] = []  # what a kill would leave: files, and directories

    def look(name: str, call: Callable[[], Any]) -> Any:
        result = call()
        paths = sorted(kept.rglob("*"))
        moments.append({str(p.relative_to(kept)): p.read_bytes() if p.is_file() else None for p in paths})
        return result

    with Directory(training.comm, kept) as directory:
        training.to_step(1)
        directory.save(1, training.sync.snapshot())
        training.to_step(2)
        with hooked(look):
            directory.save(2, training.sync.snapshot())
    expected = {step: at_step(step) for step in (1, 2)}
    seen = []
    for files in moments:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for name, content in files.items():
            if content is None:
                (copy / name).mkdir()
            else:
                (copy / name).write_bytes(content)
        step, numbers = load(copy)
        assert numbers == expected[step]
        assert not list(copy.glob("*.tmp")), "what a dead job left is removed"
        seen.append(step)
    assert seen == sorted(seen)
    assert seen.count(1) > 15
    assert seen.count(2) > 4


@pytest.mark.parametrize("ranks", [1, 2])
def test_whatever_call_fails_the_training_keeps_its_state_and_the_last_checkpoint(
    tmp_path: Path, ranks: int
) -> None:
    def attempt(failing: int) -> tuple[list[str], int]:
        """Fail in one of the calls; give what was said and how many calls there were."""
        said, calls, lock = [], [0], threading.Lock()
        path = tmp_path / f"at {failing}"

        def fail(name: str, call: Callable[[], Any]) -> Any:
            with lock:
                calls[0] += 1
                if calls[0] == failing:
                    raise OSError(errno.ENOSPC, "No space left on device")
            return call()

        def one(comm: Communicator) -> None:
            training = Training(comm, kind=Zero)
            with Directory(comm, path) as directory:
                training.to_step(1)
                directory.save(1, training.sync.snapshot())
                training.to_step(2)
                before = training.numbers()
                comm.barrier()
                context = hooked(fail) if comm.rank == 0 else contextlib.nullcontext()
                with context:
                    comm.barrier()
                    try:
                        directory.save(2, training.sync.snapshot())
                    except UserError as error:
                        said.append(str(error))
                    comm.barrier()
                assert training.numbers() == before
                if said:
                    assert not list(path.glob("*.tmp"))
                    assert directory.newest == 1
                comm.barrier()
                directory.save(3, training.sync.snapshot())
                assert directory.find().step == 3

        run_ranks(one, ranks)
        return said, calls[0]

    failing = 0
    failures = []
    while True:
        failing += 2 * ranks - 1  # on several ranks every third call will do
        said, calls = attempt(failing)
        if failing > calls:
            break
        failures += said
        assert len(said) in (0, ranks), "all ranks say it, or none"
    assert len(failures) >= 8
    for sentence in failures:
        assert "could not save step 2" in sentence
        assert "No space left on device (needed " in sentence
        assert sentence.endswith("; step 1 is intact")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint that two ranks have written, of step 2."""

    def one(comm: Communicator) -> None:
        training = Training(comm, kind=Zero)
        with Directory(comm, tmp_path / "kept") as directory:
            for step in (1, 2):
                training.to_step(step)
                directory.save(step, training.sync.snapshot(), {"kernels": "any"})
                if step == 1 and comm.rank == 0:
                    shutil.copytree(directory.of(1), tmp_path / "step 1")

    run_ranks(one, 2)
    return tmp_path / "kept"


def refused(path: Path, **other: Any) -> str:
    """Try to load: it is refused in one sentence, and the weights are as before."""
    training = Training(world_of_one(), **other)
    training.to_step(7)
    before = training.numbers()
    with Directory(training.comm, path) as directory, pytest.raises(UserError) as raised:
        training.sync.restore(directory.find())
    assert training.numbers() == before
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_file_that_was_cut_short_is_refused_by_name_and_size(saved: Path) -> None:
    for path in sorted(saved.glob("step-00000002/*")):
        whole = path.read_bytes()
        for length in {0, 1, 7, 8, 9, *np.linspace(0, len(whole) - 1, 10).astype(int).tolist()}:
            path.write_bytes(whole[:length])
            words = f"{path.name} is {length} of {len(whole)} bytes" if "shard" in path.name else path.name
            assert words in refused(saved)
        path.unlink()
        assert "shard" not in path.name or f"{path.name} is missing" in refused(saved)
        path.write_bytes(whole)
    assert load(saved)[0] == 2


def test_one_flipped_bit_anywhere_is_refused_by_the_name_of_what_it_is_in(saved: Path) -> None:
    for path in sorted(saved.glob("step-00000002/*")):
        whole = bytearray(path.read_bytes())
        header = 8 + int.from_bytes(whole[:8], "little") if "shard" in path.name else len(whole)
        places = np.linspace(0, len(whole) - 1, 60).astype(int)
        for place in places.tolist():
            whole[place] ^= 1 << (place % 8)
            path.write_bytes(whole)
            sentence = refused(saved)
            whole[place] ^= 1 << (place % 8)
            assert path.name in sentence or (place < header and "mixed" in sentence)
            if place >= header:
                assert any(f"{slot}/layers." in sentence for slot in ("weights", "mean", "square")), sentence
        path.write_bytes(whole)
    assert load(saved)[0] == 2


def test_shards_of_two_steps_are_not_mixed(saved: Path) -> None:
    name = "shard-0001.safetensors"
    shutil.copy(saved.parent / "step 1" / name, saved / "step-00000002" / name)
    assert f"{name} is of step 1, among files of step 2: they were mixed" in refused(saved)


def test_a_newer_format_says_that_a_newer_minidist_is_needed(saved: Path) -> None:
    path = saved / "step-00000002" / manifest.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    assert "it is of format 2, and this minidist knows formats up to 1: install a newer" in refused(saved)


def test_another_model_is_refused_with_all_differences(saved: Path) -> None:
    sentence = refused(saved, sizes=(6, 4, 3, 2))
    for words in (
        "it lacks layers.2.bias",
        "it lacks mean of layers.2.weight",
        "layers.0.weight is float64 (6, 5) there and float64 (6, 4) here",
        "layers.1.weight is float64 (5, 3) there and float64 (4, 3) here",
    ):
        assert words in sentence
    assert "it has layers.1.weight, which is not here" in refused(saved, sizes=(6, 5))
    sentence = refused(saved, rule=SGD)
    assert "it has square of layers.0.bias, which is not here" in sentence


def test_two_jobs_in_one_directory_are_refused(tmp_path: Path) -> None:
    words = rf"another job \(process {os.getpid()} on .*, since .*\) writes its checkpoints to"
    with Directory(world_of_one(), tmp_path / "kept"), pytest.raises(UserError, match=words):
        Directory(world_of_one(), tmp_path / "kept")
    Directory(world_of_one(), tmp_path / "kept").close()


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_directory_that_cannot_be_written_is_refused_by_all_ranks_before_anything_begins(
    tmp_path: Path, ranks: int
) -> None:
    (tmp_path / "file").touch()

    def one(comm: Communicator) -> None:
        with pytest.raises(
            UserError, match=r"no checkpoint can be written to .*file.*: .*; name a directory"
        ):
            Directory(comm, tmp_path / "file" / "kept")
        if os.path.isdir("/proc/self"):
            with pytest.raises(UserError, match="no checkpoint can be written to /proc/kept"):
                Directory(comm, "/proc/kept")

    run_ranks(one, ranks)


@pytest.mark.ranks(2, transports=("mpi",))
def test_ranks_that_stand_in_different_places_mean_the_first_ones_directory(comm: Communicator) -> None:
    with tempfile.TemporaryDirectory() as mine:
        os.chdir(mine)
        training = Training(comm)
        with Directory(comm, "läufe 1/größer") as directory:
            training.to_step(4)
            directory.save(4, training.sync.snapshot())
            expected = training.numbers()
            training.to_step(5)
            training.sync.restore(directory.find())
        assert training.numbers() == expected
        assert str(directory.path) == broadcast_text(comm, os.path.realpath("läufe 1/größer"))
        assert (Path(mine) / "läufe 1").exists() == (comm.rank == 0)
        comm.barrier()
        os.chdir("/")


def test_the_files_are_what_the_library_of_the_format_reads(saved: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    rows = json.loads((saved / "step-00000002" / manifest.NAME).read_text())["tensors"]
    found: dict[str, int] = {}
    for path in saved.glob("step-00000002/*.safetensors"):
        for key, array in library.load_file(path).items():
            (row,) = [row for row in rows if (row["file"], row["key"]) == (path.name, key)]
            start, stop = row["range"]
            assert array.dtype == row["dtype"]
            assert array.size == stop - start
            found[key] = found.get(key, 0) + array.size
    assert found["weights/layers.0.weight"] == 30
