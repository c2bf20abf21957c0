"""Load a checkpoint, on whatever ranks there are now: all of it, or nothing.

    needed here              rank 1's shard of "head.weight": elements 30 to 60
    in the checkpoint        elements 0 to 20 in shard 0,   20 to 40 in shard 1,   40 to 64 in shard 2
    read                     shards 1 and 2

Each rank reads what it needs, one parameter after another, checks its sha256, and lays it aside. Only when all ranks
have everything, they fill their memory. So a file that is damaged, or of another model, leaves the weights alone.

Where each replica has a state of its own (model averaging) and their number is the same, each gets its own back. Into
another number of replicas goes their mean, counted by the targets that each had learnt from since they were last equal:
what an average at that moment would have given them.

Cost: every rank reads what it holds; beside that it needs memory for what it holds once more, and for one whole
parameter, until all is there.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from minidist.checkpoint import manifest
from minidist.checkpoint.safetensors import Damaged, Reader
from minidist.checkpoint.state import Piece, State, elements
from minidist.comm import Communicator
from minidist.comm.texts import broadcast_text, gather_bytes, together
from minidist.errors import UserError

Row = dict[str, Any]


class Found:
    """A committed checkpoint, of which the manifest has been read; a collective, as is `load`.

    step, facts: as they were saved. numbers: of each replica.
    """

    def __init__(self, comm: Communicator, path: Path) -> None:
        self.comm, self.path = comm, path
        text = together(comm, self._read_manifest) if comm.rank == 0 else together(comm, str)
        self.facts = manifest.parse(broadcast_text(comm, text))
        self.step: int = self.facts["step"]
        self.numbers: list[dict[str, float]] = self.facts["numbers"]
        self._rows: dict[tuple[str, str], list[Row]] = {}
        for row in self.facts["tensors"]:
            self._rows.setdefault((row["slot"], row["name"]), []).append(row)
        self._readers: dict[str, Reader] = {}

    def _read_manifest(self) -> str:
        try:
            text = (self.path / manifest.NAME).read_bytes().decode()
            manifest.parse(text)
        except UnicodeDecodeError:
            raise self._damaged(f"its {manifest.NAME} is damaged") from None
        except Damaged as error:
            raise self._damaged(error) from None
        return text

    def _damaged(self, what: object) -> UserError:
        return UserError(
            f"{self.path} cannot be loaded: {what}; nothing was loaded: restore the file, or remove {self.path.name}"
        )

    def extra(self, name: str) -> np.ndarray:
        """Give an array that was saved beside the state."""
        (row,) = self._rows["extra", name]
        return together(self.comm, self._guarded, lambda: self._read(row))

    def load(self, state: State) -> None:
        """Fill the memory of all pieces. Raises UserError, on all ranks, if something is wrong: then of none."""
        self._compare(state)
        arrays = together(
            self.comm, self._guarded, lambda: [self._piece(piece, state) for piece in state.pieces]
        )
        for piece, array in zip(state.pieces, arrays, strict=True):
            piece.array[...] = array
        self.comm.barrier(purpose="control")  # from now on others may ask for what is here

    def _guarded(self, action: Any) -> Any:
        try:
            return action()
        except Damaged as error:
            raise self._damaged(error) from None
        finally:
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()

    # ---- is it of this model?

    def _compare(self, state: State) -> None:
        """Refuse a checkpoint of another model, with all differences."""
        here = [
            [piece.slot, piece.name, list(piece.placement.shape), piece.array.dtype.str]
            for piece in state.pieces
        ]
        texts = gather_bytes(self.comm, json.dumps(here).encode())
        together(self.comm, self._refuse, texts)

    def _refuse(self, texts: list[bytes] | None) -> None:
        if texts is None:
            return
        wanted = {
            (slot, name): (shape, dtype) for text in texts for slot, name, shape, dtype in json.loads(text)
        }
        saved = {
            key: (rows[0]["shape"], rows[0]["dtype"]) for key, rows in self._rows.items() if key[0] != "extra"
        }
        found = [f"it lacks {spoken(key)}" for key in wanted if key not in saved]
        found += [f"it has {spoken(key)}, which is not here" for key in saved if key not in wanted]
        for key in wanted:
            if key in saved and saved[key] != wanted[key]:
                found.append(
                    f"{spoken(key)} is {described(saved[key])} there and {described(wanted[key])} here"
                )
        if found:
            raise UserError(
                f"{self.path} is of another model or optimizer: {'; '.join(found)}. Nothing was loaded"
            )

    # ---- reading

    def _piece(self, piece: Piece, state: State) -> np.ndarray:
        """Read what a piece needs, of one replica or of all."""
        saved = len(self.numbers)
        if saved == 1 or saved == state.replicas:
            return self._of_replica(piece, state.replica if saved > 1 else 0)
        targets = [int(numbers.get("targets", 0)) for numbers in self.numbers]
        if not any(targets):
            targets = [1] * saved
        total = np.zeros(piece.array.shape, piece.array.dtype)
        for replica, count in enumerate(targets):
            total += count * self._of_replica(piece, replica)
        total /= sum(targets)
        return total

    def _of_replica(self, piece: Piece, replica: int) -> np.ndarray:
        rows = [row for row in self._rows[piece.key] if row["replica"] == replica]
        place = piece.place()
        for row in rows:
            if all(row[key] == place[key] for key in place):
                return self._read(row)
        needed = elements(place)
        least, most = bounds(needed)
        whole = np.empty(math.prod(place["shape"]), piece.array.dtype)
        filled = np.zeros(whole.size, bool)
        for row in rows:
            where = elements(row)
            first, last = bounds(where)
            if first < most and least < last:
                whole[where] = self._read(row)
                filled[where] = True
        if not filled[needed].all():
            raise Damaged(f"parts of {spoken(piece.key)} are missing")
        return whole[needed]

    def _read(self, row: Row) -> np.ndarray:
        file = row["file"]
        if file not in self._readers:
            about = self.facts["files"][file]
            expected = {"step": str(self.step)}
            self._readers[file] = Reader(self.path / file, about["bytes"], about["header_sha256"], expected)
        return self._readers[file].read(row["key"], row["sha256"])


def bounds(where: slice | np.ndarray) -> tuple[int, int]:
    """Give the first element and the one behind the last."""
    if isinstance(where, slice):
        return where.start, where.stop
    return (int(where.min()), int(where.max()) + 1) if where.size else (0, 0)


def spoken(key: tuple[str, str]) -> str:
    """Name a vector as a message does: "head.weight", or "momentum of head.weight"."""
    slot, name = key
    return name if slot == "weights" else f"{slot} of {name}"


def described(kind: tuple[list[int], str]) -> str:
    """Name a shape and a dtype."""
    return f"{np.dtype(kind[1])} {tuple(kind[0])}"
