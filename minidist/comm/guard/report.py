"""How a fault is told: once, in words for the reader of the program, and to a file for whoever counts faults.

Read `verdict.py` beside this: where the words come from.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
from collections.abc import Mapping, Sequence

from minidist.comm.errors import CommError

HEAD = "minidist guard: "


def note(error: CommError, time: float | None = None) -> None:
    """Append a fault to the file that MINIDIST_GUARD_REPORT names; on disk before the job ends.

    time: seconds since the last rank stopped. Called by one rank only.
    """
    path = os.environ.get("MINIDIST_GUARD_REPORT")
    if not path:
        return
    entry = {
        "kind": error.kind,
        "ranks": list(error.ranks),
        "lines": error.lines,
        "text": str(error),
        "time": time,
    }
    with open(path, "a") as file:
        file.write(json.dumps(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())


def note_first(error: CommError, time: float | None = None) -> None:
    """Append a fault that every rank may find by itself: once, by the rank that found it first.

    It is the same fault if it is of the same kind and has a line of the program in common.
    """
    path = os.environ.get("MINIDIST_GUARD_REPORT")
    if not path:
        return
    import fcntl  # not on native Windows

    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        told = [fault for fault in map(json.loads, file) if fault["kind"] == error.kind]
        lines = set(error.lines.values())
        if not any(lines & set(fault["lines"].values()) or not fault["lines"] for fault in told):
            note(error, time)


def warn(kind: str, text: str, ranks: Sequence[int], lines: Mapping[int, str]) -> None:
    """Print what does not stop the program; called by the lowest rank concerned."""
    warning = CommError(HEAD + text, kind, ranks, lines)
    note(warning)
    print(warning, file=sys.stderr, flush=True)


def source(line: str) -> str:
    """Give "file:line   the text of that line", the file without its folder."""
    file, _, number = line.rpartition(":")
    text = linecache.getline(file, int(number)).strip() if number.isdigit() else ""
    return f"{short(line)}   {text}".rstrip()


def short(line: str) -> str:
    """Give "file:line", the file without its folder."""
    return os.path.basename(line)


def name_ranks(ranks: Sequence[int]) -> str:
    """Give "rank 2" or "ranks 0, 1 and 3"."""
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"
