"""A directory of checkpoints: the newest one is whole, whatever happens while the next one is written.

    runs/a/lock                     held by the job that writes here, as long as it lives
    runs/a/step-00000020/           committed: manifest.json and a shard from each rank that has something to write
    runs/a/step-00000040.tmp/       being written: not there, as far as loading is concerned

    every rank    its shard: write, fsync
    first rank    when all have: the manifest, write, fsync; rename step-00000040.tmp; then remove step-00000020

So at every moment one committed checkpoint is there, and two for a moment after the rename. What a dead job left
half-written is removed by the next one. The ranks agree on each stage: it succeeds on all of them, or all say in one
sentence why not, and the training can go on as if nothing had been tried.

Cost: each number of the state is written once, by one of the ranks that have it, straight from where it is; a few
small messages. Ranks on several machines need a directory that all of them see.
Read next: `loading.py`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minidist.checkpoint import disk, manifest, safetensors
from minidist.checkpoint.loading import Found
from minidist.checkpoint.state import Piece, State
from minidist.comm import Communicator
from minidist.comm.texts import FailedTogether, broadcast_text, gather_bytes, together
from minidist.errors import UserError
from minidist.nn.placement import Placement

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Directory:
    """Keep the checkpoints of one job; a collective, as are `save` and `find`.

    path: made if it is not there; the first rank's counts. Raises UserError, on all ranks, where one may not write, or
    where another job does.
    newest: the step of the newest checkpoint, or None.
    """

    def __init__(self, comm: Communicator, path: str | os.PathLike[str]) -> None:
        self.comm = comm
        self.path = Path(broadcast_text(comm, os.path.abspath(path)))  # ranks may stand in different places
        self.newest: int | None = None
        self._lock: int | None = None
        try:
            together(comm, self._open)
            together(comm, self._probe)
        except FailedTogether as error:
            self.close()
            if not error.errno:
                raise
            raise UserError(
                f"no checkpoint can be written to {self.path}: {error}; name a directory where you may write"
            ) from None
        self.newest = self._newest()

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another job write here; the end of the process does the same."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---- opening

    def _open(self) -> None:
        if self.comm.rank:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 1000, 0).decode(errors="replace") or "an unknown process"
            raise UserError(
                f"another job ({holder}) writes its checkpoints to {self.path}: wait for its end, or name another "
                "directory"
            ) from None
        except OSError:  # a file system that knows no locks
            pass
        os.truncate(self._lock, 0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        os.write(self._lock, f"process {os.getpid()} on {socket.gethostname()}, since {since}".encode())
        for left in self.path.glob("step-*.tmp"):
            disk.discard(left, manifest.NAME)

    def _probe(self) -> None:
        """Write something, and remove it."""
        probe = self.path / f".probe-{self.comm.rank}-{os.getpid()}"
        probe.unlink(missing_ok=True)
        disk.write_file(probe, [b"x"])
        probe.unlink()

    def _newest(self) -> int | None:
        newest = max(self._steps(), default=-1) if self.comm.rank == 0 else -1
        newest = int(self.comm.broadcast(np.array(newest), purpose="control"))
        return None if newest < 0 else newest

    def _steps(self) -> list[int]:
        named = [(path, re.fullmatch(r"step-(\d+)", path.name)) for path in self.path.iterdir()]
        return [int(name[1]) for path, name in named if name and (path / manifest.NAME).exists()]

    def of(self, step: int) -> Path:
        """Name the directory of a step's checkpoint."""
        return self.path / f"step-{step:08d}"

    # ---- saving

    def save(
        self,
        step: int,
        state: State,
        facts: Mapping[str, Any] | None = None,
        extras: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Save the state that all ranks have after a step, and remove the checkpoint before it.

        facts: plain data that describe the run; of the first rank. extras: 1-d arrays by name; of the first rank, too.
        Raises UserError, on all ranks, if that cannot be done: then nothing has changed.
        """
        if step == self.newest:
            return
        temporary = self.of(step).with_suffix(".tmp")
        pieces = [piece for piece in state.pieces if piece.writes]
        if self.comm.rank == 0:
            for name, array in (extras or {}).items():
                pieces.append(Piece("extra", name, Placement(array.shape), 0, array.size, array))
        try:
            together(self.comm, self._begin, step, temporary)
            mine = together(self.comm, self._write_shard, step, temporary, state, pieces)
            shards = gather_bytes(self.comm, json.dumps(mine).encode())
            together(self.comm, self._commit, step, temporary, shards, dict(facts or {}))
        except FailedTogether as error:
            raise UserError(self._failure(step, temporary, pieces, error)) from None
        self.newest = step
        if self.comm.rank == 0:
            for older in [other for other in self._steps() if other < step]:
                disk.discard(self.of(older), manifest.NAME)

    def _begin(self, step: int, temporary: Path) -> None:
        if self.comm.rank == 0:
            for left in (temporary, self.of(step)):  # the second had no manifest, or had this number before
                disk.discard(left, manifest.NAME)
            temporary.mkdir()

    def _write_shard(self, step: int, temporary: Path, state: State, pieces: list[Piece]) -> dict[str, Any]:
        """Write this rank's file; give its part of the manifest."""
        mine: dict[str, Any] = {
            "numbers": state.numbers, "replica": state.replica, "replicas": state.replicas, "files": {}, "tensors": [],
        }  # fmt: skip
        if not pieces:
            return mine
        file = f"shard-{self.comm.rank:04d}.safetensors"
        arrays: dict[str, np.ndarray] = {}
        for piece in pieces:
            key, whole = "/".join(piece.key), piece.placement.here
            if key in arrays:  # of another part of the same parameter
                key += f"#{len(arrays)}"
            arrays[key] = piece.array.reshape(whole) if piece.array.size == np.prod(whole) else piece.array
            row = {"slot": piece.slot, "name": piece.name, **piece.place()}
            row.update(replica=state.replica, dtype=piece.array.dtype.str, file=file, key=key)
            mine["tensors"].append(row)
        written = safetensors.write(temporary / file, arrays, {"step": str(step)})
        for row in mine["tensors"]:
            row["sha256"] = written["sha256"][row["key"]]
        mine["files"][file] = {name: written[name] for name in ("bytes", "header_sha256")}
        return mine

    def _commit(self, step: int, temporary: Path, shards: list[bytes] | None, facts: dict[str, Any]) -> None:
        if shards is None:
            return
        told = [json.loads(shard) for shard in shards]
        replicas = max(one["replicas"] for one in told)
        numbers: list[dict[str, float]] = [{} for _ in range(replicas)]
        for one in told:
            numbers[one["replica"]].update(one["numbers"])
        content = {
            "step": step,
            **facts,
            "numbers": numbers,  # of each replica
            "files": {name: about for one in told for name, about in one["files"].items()},
            "tensors": [row for one in told for row in one["tensors"]],
        }
        disk.write_file(temporary / manifest.NAME, [manifest.render(content).encode()])
        disk.commit(temporary, self.of(step))

    def _failure(self, step: int, temporary: Path, pieces: list[Piece], error: FailedTogether) -> str:
        """Clear up, and say what has happened."""
        if self.comm.rank == 0:
            disk.discard(temporary, manifest.NAME)
        needed = sum(piece.array.nbytes for piece in pieces)
        needed = int(self.comm.all_reduce(np.array(needed), purpose="control"))
        space = ""
        if error.errno in FULL:
            free = shutil.disk_usage(self.path).free
            space = f" (needed {needed / 1e6:.3g} MB, free {free / 1e6:.3g} MB)"
        intact = f"step {self.newest} is intact" if self.newest is not None else "there is none yet"
        return f"could not save step {step} in {self.path}: {error}{space}; {intact}"

    # ---- loading

    def find(self) -> Found:
        """Read the manifest of the newest checkpoint; raises UserError if there is none, or it is damaged."""
        if self.newest is None:
            raise UserError(
                f"there is no checkpoint in {self.path}: leave --resume out to begin, or name another directory"
            )
        return Found(self.comm, self.of(self.newest))
