"""How ranks leave, so that nobody waits for a rank that is gone.

By itself MPI does nothing when one rank stops: the others wait for ever. So `world()` installs this file in an
MPI world of more than one rank. Whatever makes a rank leave, it tells all others, on a communicator that is
used for nothing else (`line.py`):

    an uncaught exception    the ranks that failed agree, in a moment, on who tells it: the lowest prints its
                             traceback, once, and ends the job
    sys.exit(3)              the rank says so in one line and ends the job; so does os._exit, whatever its code
    the end of the program   the rank says farewell and waits, politely, until all have; then MPI shuts down.
                             Whoever waits for a message of a rank that has left ends the job and says so
    Ctrl-C, SIGTERM          as an exception, but in one line, with exit code 130, or 143; a training first ends its
                             step (`stopping.py`)

A rank that is killed can say nothing; there MPI itself ends the job. What is known here stands at module level,
because an MPI rank is a process, and a process leaves only once.

Read `mpi.py` beside it: its wait loop calls `look` before each nap.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from minidist import leftovers
from minidist.comm import line, stopping
from minidist.comm.errors import CommError
from minidist.comm.events import last_words, source_line, tell_all_ended
from minidist.errors import UserError
from minidist.machine import end_with_parent

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from mpi4py import MPI

    from minidist.comm.core import Core
    from minidist.comm.progress import TransportRequest

WINDOW = 0.2  # seconds in which ranks that fail together hear of each other
GRACE = 0.5  # seconds that a message of a rank that has left may still be under way ...
LOOKS = 50  # ... and how often we must have looked for it: a process that was stopped has not looked
NAP = 2e-3  # seconds
FORWARDING = 0.1  # seconds for mpiexec to pass on what we wrote: it drops what it has not read at an Abort

_world: MPI.Intracomm | None = None  # None: not installed
_failed: dict[int, dict[str, str]] = {}  # rank -> what it announced
_finished: set[int] = set()  # ranks that have said farewell
_os_exit_itself = os._exit
_program: Core | None = None  # whose listeners hear of the end
_last_words: dict[int, dict[str, Any]] = {}  # what each rank's listeners said with its farewell
_suspicion: tuple[list[Any], float, int] = ([], 0.0, 0)  # (waiting requests, since when, looks)


def install(world: MPI.Intracomm) -> None:
    """Watch how the ranks of `world` leave; all of them call this at the same point.

    Inside a notebook kernel nothing is installed: there an exception ends a cell, not the program.
    """
    global _world
    if _world is not None or world.Get_size() == 1 or "ipykernel" in sys.modules:
        return
    together = world.Ibarrier()
    while not together.Test():  # Dup blocks inside MPI: enter it when all are there
        time.sleep(NAP / 2)
    _world = world
    line.connect(world)
    line.on("failed", _failed.__setitem__)
    line.on("finished", _hear_farewell)
    leftovers.unlink_own()
    if world.Get_rank() == 0:
        leftovers.sweep()
    sys.excepthook = _uncaught
    sys.exit = builtins.exit = builtins.quit = _sys_exit  # type: ignore[assignment]
    os._exit = _os_exit
    if threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _terminated)
    end_with_parent()  # whoever started this rank may be killed, and then nobody would end it
    atexit.register(farewell)
    os.register_at_fork(after_in_child=_forget)
    faulthandler.enable()
    stacks = os.environ.get("MINIDIST_STACKS")  # where minidist.launch reads them at its time limit
    if stacks:
        faulthandler.register(signal.SIGUSR2, open(stacks, "w"), all_threads=True)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # whole lines, so that those of different ranks do not mix
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, write_through=False)


def tell_listeners(comm: Core) -> None:
    """Let the listeners of the world's communicator say their last words, and hear those of all ranks."""
    global _program
    _program = comm


def look(pending: Iterable[TransportRequest], describe: Callable[[], str]) -> None:
    """Look whether what this rank waits for can still come; called before each nap of a waiting rank.

    `pending`: the requests, with their peers' world ranks (None: any). `describe()`: what is waited for, in words.
    Ends the job if a peer has left and its message is not under way.
    """
    global _suspicion
    if _world is None:
        return
    stopping.look()
    line.listen()
    if not _finished:
        return
    waiting = list(pending)
    others = set(range(_world.Get_size())) - {_world.Get_rank()}
    gone = {request.peer for request in waiting if request.peer is not None} & _finished
    if others <= _finished and any(request.peer is None for request in waiting):
        gone = others
    requests, since, looks = _suspicion
    if not gone or requests != waiting:
        _suspicion = (waiting, time.monotonic(), 0)
        return
    _suspicion = (requests, since, looks + 1)
    if time.monotonic() - since > GRACE and looks > LOOKS:
        leavers = _ranks(sorted(gone)) + (" has" if len(gone) == 1 else " have")
        say = f"waits at {source_line()} in {describe()}; but {leavers} already finished the program"
        _fail(say, say, code=1)


def _forget() -> None:
    """Be an ordinary process again: a child that a rank has forked is not a rank."""
    global _world
    _world = None
    line.hang_up()
    sys.excepthook = sys.__excepthook__
    os._exit = _os_exit_itself
    if signal.getsignal(signal.SIGTERM) is _terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _sys_exit(code: Any = None, /) -> NoReturn:
    """Take the place of sys.exit."""
    raise _Exit(code)


class _Exit(SystemExit):
    """A SystemExit that notices whether it ends the program: it may also be caught.

    atexit is not told the exit code, and comes only after the program's threads have ended. But whoever catches
    an exception drops it while other code runs; only when Python itself leaves, no code is left that runs.
    """

    def __del__(self) -> None:
        leaving = sys is not None and sys._getframe().f_back is None
        if leaving and _world is not None and self.code not in (None, 0) and not _said_farewell():
            say = f"called sys.exit({self.code!r}): ending the job"
            _fail(say, say, code=((self.code & 0xFF) or 1) if isinstance(self.code, int) else 1)


def _os_exit(status: int) -> NoReturn:
    """Take the place of os._exit: at once, but not without a word."""
    if _world is not None and not _said_farewell():
        say = f"called os._exit({status}) at {source_line()}: ending the job"
        _fail(say, say, code=(status & 0xFF) or 1)
    _os_exit_itself(status)


def leave_deaths_to_parent() -> None:
    """Let os._exit and SIGTERM do what they do by themselves: who started these ranks looks for it, and tells it."""
    os._exit = _os_exit_itself
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminated(number: int, frame: FrameType | None) -> None:
    """Take the place of what SIGTERM does by itself; a second one is not waited for.

    Open MPI ends a job by this signal: then another rank is the cause, and who tells it is that rank, or the launcher.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _listen_for(WINDOW)  # who has computed until now has heard nothing yet
    if _failed:
        _listen_for(4 * WINDOW)
    if _failed or _said_farewell() or _launcher_knows_who_ended():
        os.kill(os.getpid(), signal.SIGTERM)
    _fail("was ended by SIGTERM", "was ended by SIGTERM", code=143)


def _launcher_knows_who_ended() -> bool:
    """Say whether minidist.launch has the exit code of a rank already: it is noted before MPI ends the others."""
    stacks = os.environ.get("MINIDIST_STACKS")
    return stacks is not None and any(Path(stacks).parent.glob("exit-*"))


def _uncaught(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
    """Take the place of sys.excepthook."""
    if isinstance(error, KeyboardInterrupt):
        _fail("was interrupted", "interrupted: ending the job", code=130)
    if isinstance(error, UserError):
        _fail(str(error), str(error), code=2)
    if isinstance(error, CommError) and error.kind:  # the guard's report says it all, the same on all ranks
        _fail(str(error).partition("\n")[0], str(error), code=1)
    summary = traceback.format_exception_only(kind, error)[-1].strip()
    _fail(f"raised {summary}", "".join(traceback.format_exception(kind, error, tb)).rstrip(), code=1)


def _fail(summary: str, text: str, code: int) -> NoReturn:
    """Announce that this rank has failed; the lowest rank of those that failed tells it; end the job."""
    assert _world is not None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # we are about to end anyway
    me = _world.Get_rank()
    _failed[me] = {"summary": summary[:1000], "text": text[-3000:]}  # the end of a traceback says most
    line.tell({"failed": _failed[me]})
    _listen_for(WINDOW)
    if min(_failed) != me:
        _listen_for(5 * WINDOW)  # that rank tells it and ends the job; if it cannot any more, we do
    same = [rank for rank in sorted(_failed) if rank != me and _failed[rank]["text"] == text[-3000:]]
    lines = text.splitlines() + ([f"(the same on {_ranks(same)})"] if same else [])
    lines = [f"[rank {me}] {line}" for line in lines]
    if code == 2 and len(same) == _world.Get_size() - 1:
        lines = [text]  # what the user typed was wrong, not a rank
    for rank in sorted(set(_failed) - {me, *same}):
        lines.append(f"[rank {rank}] {_failed[rank]['summary']}")
    with contextlib.suppress(OSError, ValueError):  # whoever read our output may be gone
        sys.stdout.flush()
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
    time.sleep(FORWARDING)
    with contextlib.suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # all is said; MPICH would add "application called MPI_Abort"
    _world.Abort(code)  # of the whole world: on a duplicate, MPICH often replaces our exit code by 9
    _os_exit_itself(code)


def farewell() -> None:
    """Say that this rank has finished, and stay until all have; called at exit."""
    if _world is None or _said_farewell():
        return
    try:
        words = last_words(_program.listeners if _program else [])
        _hear_farewell(_world.Get_rank(), words)
        line.tell({"finished": words})
        while len(_finished) < _world.Get_size() or not line.is_quiet():
            line.listen()
            time.sleep(NAP)
        if _program is not None and _program.rank == 0:
            tell_all_ended(_program.listeners, [_last_words[rank] for rank in range(_world.Get_size())])
    except KeyboardInterrupt:
        _fail("was interrupted", "interrupted: ending the job", code=130)


def _said_farewell() -> bool:
    return _world is not None and _world.Get_rank() in _finished


def _hear_farewell(rank: int, words: dict[str, Any]) -> None:
    """Hear that a rank has finished, and what its listeners said."""
    _finished.add(rank)
    _last_words[rank] = words


def _listen_for(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        line.listen()
        time.sleep(NAP)


def _ranks(ranks: list[int]) -> str:
    """Return "rank 2" or "ranks 0, 1, 3"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
