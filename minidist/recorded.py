"""The last operations of every rank, which outlive it: where they stand, and how they are read and told.

    DIR/recorder-2    | who | operation 0 | operation 1 | ... | operation 255 |      a file that is mapped into memory

A rank writes what it does into its mapping (`comm/guard/recorder.py`); operation n takes place n modulo 256. The pages
belong to the kernel and not to the process: what was written stays readable however the rank ends, `kill -9` included.
`launch/` reads them when a rank has died or the time is over, `python -m minidist.comm.guard DIR` whenever you like.

Times are monotonic, which is one clock for all processes of a machine. Read next: `comm/guard/recorder.py`.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEPT = 256  # operations
PLACE = 512  # bytes for each
SIZE = PLACE * (1 + KEPT)
WHO = struct.Struct("<qqq")  # ranks in the job, process, when it began (ns since 1970)
# Number (from 1), sequence, step, peer, tag, began (ns), ended (ns), state, bytes of what follows: the facts, as JSON.
HEAD = struct.Struct("<qqqqqqqii")
END, END_AT, STATE_AT = struct.Struct("<qi"), 48, 56  # what changes: ended and state; where in a HEAD
NONE = -(2**31)  # for a number that an operation has not
STATES = ("", "begun", "waits", "done", "failed")
BEGUN, WAITS, DONE, FAILED = range(1, 5)
TOLD = 5  # operations of a rank that has died
ARRAYS_ALIKE = ("all_reduce", "iall_reduce", "reduce", "reduce_scatter", "ireduce_scatter")


@dataclass(frozen=True)
class Recorded:
    """One operation of one rank."""

    rank: int
    number: int
    sequence: int | None  # the collective's number on its communicator
    step: int | None  # of a training
    peer: int | None
    tag: int | None
    began: float  # seconds
    ended: float  # seconds; 0: it has not
    state: str
    facts: dict[str, Any]  # call, comm, key, op, root, dest, dtype, shape, order, line

    @property
    def called(self) -> str:
        """Name the call, and which one on its communicator it is: all_reduce #7 on 'world'."""
        call, number = self.facts["call"], "" if self.sequence is None else f" #{self.sequence}"
        names = {"send": "dest", "isend": "dest"}
        given = {
            names.get(call, "source"): self.peer,
            "dest of the send": self.facts["dest"],
            "tag": self.tag,
            "op": self.facts["op"],
            "root": self.facts["root"],
        }
        said = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        return f"{call}{number}{said and f' ({said})'} on {self.facts['comm']!r}"

    @property
    def array(self) -> str:
        """Name the array: float32 (3, 4)."""
        dtype, shape, order = (self.facts[name] for name in ("dtype", "shape", "order"))
        return "" if dtype is None else f"{dtype} {tuple(shape)}{', order not C' * (order != 'C')}"

    @property
    def source(self) -> str:
        """Give the user's line and its text, the file without its folder."""
        file, _, number = self.facts["line"].rpartition(":")
        text = linecache.getline(file, int(number)).strip() if number.isdigit() else ""
        return f"{os.path.basename(file)}:{number}   {text[:60]}".rstrip()

    def alike(self) -> tuple[Any, ...]:
        """Give what must be equal on all ranks of a collective."""
        names = ("call", "op", "root", *(("dtype", "shape") if self.facts["call"] in ARRAYS_ALIKE else ()))
        return tuple(str(self.facts[name]) for name in names)


def read(memory: bytes, rank: int) -> list[Recorded]:
    """Read what one rank has written, the oldest first."""
    found = []
    for at in range(PLACE, SIZE, PLACE):
        number, sequence, step, peer, tag, began, ended, state, length = HEAD.unpack_from(memory, at)
        sequence, step, peer, tag = (
            None if value == NONE else value for value in (sequence, step, peer, tag)
        )
        with contextlib.suppress(ValueError):  # the place is empty, or its rank was killed while it wrote
            facts = json.loads(memory[at + HEAD.size : at + HEAD.size + length])
            times = began / 1e9, ended / 1e9
            found.append(Recorded(rank, number, sequence, step, peer, tag, *times, STATES[state], facts))
    found.sort(key=lambda operation: operation.number)
    return [operation for operation in found if operation.number > found[-1].number - KEPT + 1]


def read_all(directory: Path) -> dict[int, list[Recorded]]:
    """Read what the ranks of the newest job in a folder have written: {rank: its operations, the oldest first}."""
    files = {int(file.suffix[1:]): file.read_bytes() for file in directory.glob("recorder.*")}
    whole = {rank: memory for rank, memory in files.items() if len(memory) == SIZE}
    size = max((WHO.unpack_from(memory) for memory in whole.values()), key=lambda who: who[2], default=(0,))[
        0
    ]
    return {rank: read(memory, rank) for rank, memory in sorted(whole.items()) if rank < size}


def remove(directory: Path) -> None:
    """Remove what an earlier job has left in a folder."""
    for file in directory.glob("recorder.*"):
        file.unlink(missing_ok=True)


def stands(operations: Sequence[Recorded]) -> Recorded:
    """Give the operation in which a rank is: what it waits for, or what it did last."""
    return next((operation for operation in operations if operation.state == "waits"), operations[-1])


def report(directory: Path, died: Sequence[int] = ()) -> list[str]:
    """Write what is to be said when ranks have died, or the time is over; no lines if nothing was recorded."""
    ranks = read_all(directory)
    lines = tell(ranks, died)
    if not lines or (died and not any(ranks.get(rank) for rank in died)):
        return []
    what = (
        f"the last operations of {name_ranks(died)}, and where the others stood"
        if died
        else "the ranks' last operations"
    )
    where = first_difference(ranks)
    return [f"{what} (seconds before the last of all):", *lines, *([where] if where else [])]


def tell(ranks: Mapping[int, Sequence[Recorded]], in_full: Iterable[int], most: int = TOLD) -> list[str]:
    """Write the last operations of some ranks, and where the others stand; no lines if nothing is known."""
    ranks = {rank: operations for rank, operations in ranks.items() if operations}
    chosen = [rank for rank in in_full if rank in ranks]
    if not ranks:
        return []
    newest = max(max(operation.began, operation.ended) for own in ranks.values() for operation in own)
    rows: list[tuple[str, ...]] = []
    for rank in chosen:
        for operation in ranks[rank][-most:]:
            rows.append((f"rank {rank}", *_row(operation, newest)))
    groups: dict[tuple[str, ...], list[tuple[int, tuple[str, ...]]]] = {}
    for rank in ranks:
        if rank not in chosen:
            operation = stands(ranks[rank])
            same = operation.state, operation.called, operation.array, operation.source
            groups.setdefault(same, []).append((rank, _row(operation, newest)))
    rows += [(name_ranks([rank for rank, _ in group]), *group[0][1]) for group in groups.values()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    cells = [[cell.ljust(wide) for cell, wide in zip(row, widths, strict=True) if wide] for row in rows]
    return [f"  {'  '.join(row)}".rstrip() for row in cells]


def _row(operation: Recorded, newest: float) -> tuple[str, ...]:
    step = "" if operation.step is None else f"step {operation.step}"
    ago = f"-{newest - operation.began:.3f} s"
    return step, ago, operation.state, operation.called, operation.array, operation.source


def first_difference(ranks: Mapping[int, Sequence[Recorded]]) -> str:
    """Say where the ranks' collectives part: the first that differs, or that some rank has not come to; "" if none."""
    met: dict[tuple[str, int], dict[int, Recorded]] = {}
    for rank, operations in ranks.items():
        for operation in operations:
            if operation.sequence is not None:
                met.setdefault((operation.facts["key"], operation.sequence), {})[rank] = operation
    order = sorted(met.values(), key=lambda calls: min(operation.began for operation in calls.values()))
    for calls in order:
        groups: dict[tuple[Any, ...], list[Recorded]] = {}
        for operation in calls.values():
            groups.setdefault(operation.alike(), []).append(operation)
        if len(groups) > 1:
            said = [
                f"{name_ranks([one.rank for one in group])}: {group[0].called} {group[0].array} ({group[0].source})"
                for group in groups.values()
            ]
            return "\n".join(["From here on the ranks differ:", *(f"  {text}" for text in said)])
    for key in dict.fromkeys(key for key, _ in met):
        furthest = {rank: -1 for rank, own in ranks.items() if key == "()" and len(own) < KEPT - 1}
        for (other, sequence), calls in met.items():
            if other == key:
                furthest.update({rank: max(sequence, furthest.get(rank, -1)) for rank in calls})
        behind = min(furthest.values())
        missing = [rank for rank in sorted(furthest) if furthest[rank] == behind]
        came = met.get((key, behind + 1))
        if came:
            call, has = next(iter(came.values())), "has" if len(missing) == 1 else "have"
            did = f"which {name_ranks(sorted(came))} {'has' if len(came) == 1 else 'have'} called"
            return f"{name_ranks(missing).capitalize()} {has} not come to {call.called}, {did}."
    return ""


def name_ranks(ranks: Sequence[int]) -> str:
    """Give "rank 2" or "ranks 0, 1, 3"."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
