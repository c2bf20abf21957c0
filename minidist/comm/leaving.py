"""How ranks leave, so that nobody waits for a rank that is gone.

By itself MPI does nothing when one rank stops: the others wait for ever. `world()` therefore installs this file in
an MPI world of more than one rank. Whatever makes a rank leave, it says so to all others, on a communicator that is
used for nothing else:

    an exception that nobody caught    the ranks that failed agree in a moment whose traceback is printed (the lowest
                                       rank's), once; then that rank ends the job
    sys.exit(3)                        says so in one line and ends the job
    the end of the program             says farewell, and waits until all have said it; then MPI is shut down.
                                       Whoever waits for a message of a rank that has said farewell ends the job
    Ctrl-C                             as an exception, in one line, with exit code 130

A killed rank can say nothing; there MPI itself ends the job. One process is one rank here, so what this file knows
stands at module level.

Read `mpi.py` beside it: its wait loop calls `look` before each nap.
"""

from __future__ import annotations

import atexit
import builtins
import faulthandler
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from minidist.errors import UserError

if TYPE_CHECKING:
    from types import TracebackType

    from mpi4py import MPI

    from minidist.comm.progress import TransportRequest

WINDOW = 0.2  # seconds in which ranks that fail together hear of each other
GRACE = 0.5  # seconds that a message of a rank that has left may still be under way
LOOKS = 50  # and how often we must have looked for it: a process that was stopped has not looked
LONGEST = 8192  # bytes of an announcement

_control: MPI.Intracomm | None = None  # the ranks' private line; None: not installed
_failed: dict[int, dict[str, Any]] = {}  # rank -> what it announced
_finished: dict[int, int] = {}  # rank -> the exit code with which it said farewell
_sends: list[Any] = []  # announcements on their way: (request, the bytes it reads)
_exit_code: Any = None  # of the sys.exit that is ending this interpreter
_suspicion: tuple[list[Any], float, int] | None = None  # (waiting requests, since when, looks)


def install(world: MPI.Intracomm) -> None:
    """Watch how the ranks of `world` leave; all of them call this at the same point.

    Inside a notebook kernel nothing is installed: there an exception ends a cell, not the program.
    """
    global _control
    if _control is not None or world.Get_size() == 1 or "ipykernel" in sys.modules:
        return
    together = world.Ibarrier()
    while not together.Test():  # Dup blocks inside MPI: enter it when all are there
        time.sleep(1e-3)
    _control = world.Dup()
    sys.excepthook = _uncaught
    sys.exit = builtins.exit = builtins.quit = _sys_exit
    atexit.register(_farewell)
    faulthandler.enable()
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # lines of different ranks must not mix, even with PYTHONUNBUFFERED
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, write_through=False)


def look(pending: Iterable[TransportRequest], describe: Callable[[], str]) -> None:
    """Look whether what this rank waits for can still come; called before each nap of a waiting rank.

    `pending`: the requests, with their peers' world ranks; `describe()` says in words what is waited for.
    Ends the job if a peer has left and its message is not under way.
    """
    global _suspicion
    if _control is None:
        return
    _listen()
    if not _finished:
        return
    waiting = list(pending)
    others = set(range(_control.Get_size())) - {_control.Get_rank()}
    gone = {request.peer for request in waiting if request.peer in _finished}
    if any(request.peer is None for request in waiting) and others <= set(_finished):
        gone |= others
    if not gone:
        _suspicion = None
        return
    if _suspicion is None or _suspicion[0] != waiting:
        _suspicion = (waiting, time.monotonic(), 0)
    requests, since, looks = _suspicion
    _suspicion = (requests, since, looks + 1)
    if time.monotonic() - since > GRACE and looks > LOOKS:
        rank = min(gone)  # type: ignore[type-var]
        summary = (
            f"waits in {describe()}, but rank {rank} has already finished the program "
            f"(exit code {_finished[rank]}): every rank must make the same calls"
        )
        _fail(summary, summary, code=1)


def _sys_exit(code: Any = None, /) -> NoReturn:
    raise _Exit(code)


class _Exit(SystemExit):
    """Notice that the interpreter is really leaving; a SystemExit may also be caught.

    When Python leaves, the interpreter itself drops the exception last, with no Python code running; whoever
    catches it drops it while his own code runs. atexit comes later and is not told the code.
    """

    def __del__(self) -> None:
        global _exit_code
        if sys is not None and sys._getframe().f_back is None:
            _exit_code = self.code
            code = _as_number(self.code)
            if code and _control is not None:  # now, and not in atexit: that waits for the user's threads
                _fail(
                    f"called sys.exit({self.code!r})", f"called sys.exit({self.code!r}): ending the job", code
                )


def _as_number(code: Any) -> int:
    """Return the exit code that Python makes of the argument of sys.exit."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _uncaught(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
    """Take the place of sys.excepthook."""
    summary = traceback.format_exception_only(kind, error)[-1].strip()
    if isinstance(error, KeyboardInterrupt):
        _fail("was interrupted", "interrupted: ending the job", code=130)
    if isinstance(error, UserError):
        _fail(str(error), str(error), code=2)
    _fail(f"raised {summary}", "".join(traceback.format_exception(kind, error, tb)).rstrip(), code=1)


def _fail(summary: str, text: str, code: int) -> NoReturn:
    """Announce that this rank has failed, let the lowest of the failed ranks tell it, and end the job."""
    assert _control is not None
    me = _control.Get_rank()
    _failed[me] = {"summary": summary, "text": text[: LONGEST // 4]}
    _announce({"failed": _failed[me]})
    until = time.monotonic() + WINDOW
    while time.monotonic() < until:
        _listen()
        time.sleep(2e-3)
    if min(_failed) != me:  # that rank tells it, and ends the job
        time.sleep(4 * WINDOW)
    sys.stdout.flush()
    lines = [f"[rank {me}] {line}" for line in text.splitlines()]
    same = [rank for rank in sorted(_failed) if rank != me and _failed[rank]["text"] == text[: LONGEST // 4]]
    if same:
        lines.append(
            f"[rank {me}] (the same on {'rank' if len(same) == 1 else 'ranks'} {', '.join(map(str, same))})"
        )
    lines += [
        f"[rank {rank}] {_failed[rank]['summary']}"
        for rank in sorted(_failed)
        if rank != me and rank not in same
    ]
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()
    _control.Abort(code)
    os._exit(code)  # not reached, unless this MPI's Abort returns


def _farewell() -> None:
    """Say that this rank has finished, and stay until all have; called at exit."""
    if _control is None or _failed.get(_control.Get_rank()):
        return
    sys.stdout.flush()
    _finished[_control.Get_rank()] = 0
    _announce({"finished": 0})
    while len(_finished) < _control.Get_size():
        _listen()
        time.sleep(2e-3)
    while not all(request.Test() for request, _ in _sends):
        time.sleep(1e-3)


def _announce(what: dict[str, Any]) -> None:
    """Tell all other ranks, without waiting for anyone."""
    assert _control is not None
    content = bytearray(json.dumps(what).encode())
    for rank in range(_control.Get_size()):
        if rank != _control.Get_rank():
            _sends.append((_control.Isend(content, rank), content))


def _listen() -> None:
    """Hear what other ranks have announced."""
    assert _control is not None
    from mpi4py import MPI

    status = MPI.Status()
    while _control.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
        content = bytearray(status.Get_count(MPI.BYTE))
        _control.Recv(content, status.Get_source(), status.Get_tag())
        said = json.loads(content.decode())
        if "failed" in said:
            _failed[status.Get_source()] = said["failed"]
        else:
            _finished[status.Get_source()] = said["finished"]
