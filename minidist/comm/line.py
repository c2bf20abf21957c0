"""The ranks' private line: short words from rank to rank, on a communicator that is used for nothing else.

    tell({"failed": ...})                to all others, without waiting for anyone
    on("failed", heard)                  heard(rank, content) is called for each such word that comes
    listen()                             take what has come; a rank that waits does so before each nap

What one rank tells another arrives in that order. Who tells a last word on it and stays until all others have told
theirs has therefore heard all that was ever said to it: nothing is left unreceived at the end.

It stands at module level, because an MPI rank is a process. Read next: `leaving.py`, which opens it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI

_line: MPI.Intracomm | None = None  # None: there is none
_sends: list[tuple[MPI.Request, bytearray]] = []  # on their way, and the bytes that MPI reads
_receives: list[tuple[MPI.Request, bytearray, int]] = []  # and from whom; in the order in which they came
_hear: dict[str, Callable[[int, Any], None]] = {}


def connect(world: MPI.Intracomm) -> None:
    """Open the line for the ranks of `world`; they all enter this together."""
    global _line
    _line = world.Dup()


def hang_up() -> None:
    """Forget the line: a child that a rank has forked is not a rank."""
    global _line
    _line = None


def is_open() -> bool:
    """Say whether there is a line."""
    return _line is not None


def on(kind: str, heard: Callable[[int, Any], None]) -> None:
    """Let words of a kind be told to `heard(rank, content)` from now on."""
    _hear[kind] = heard


def tell(what: dict[str, Any], ranks: Iterable[int] | None = None) -> None:
    """Tell other ranks of the world, without waiting for anyone. what: {kind: content}. ranks None: all others."""
    if _line is None:
        return
    _sends[:] = [(request, content) for request, content in _sends if not request.Test()]
    content = bytearray(json.dumps(what).encode())
    for rank in range(_line.Get_size()) if ranks is None else ranks:
        if rank != _line.Get_rank():
            _sends.append((_line.Isend(content, rank), content))


def listen() -> None:
    """Hear what other ranks have told this one."""
    if _line is None:
        return
    from mpi4py import MPI

    status = MPI.Status()
    while (message := _line.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)) is not None:
        content = bytearray(status.Get_count(MPI.BYTE))
        _receives.append((message.Irecv(content), content, status.Get_source()))
    while _receives and _receives[0][0].Test():  # a long one may take a while: nobody waits for it here
        _, content, rank = _receives.pop(0)
        for kind, told in json.loads(content.decode()).items():
            if kind in _hear:
                _hear[kind](rank, told)


def is_quiet() -> bool:
    """Say whether all that this rank has told has been taken."""
    _sends[:] = [(request, content) for request, content in _sends if not request.Test()]
    return not _sends
