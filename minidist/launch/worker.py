"""What runs on a rank of a `Job`: wait for a call, run it, write down how it ended.

Parent and ranks talk through files in the job's private directory, each written under a temporary name and then
renamed, so that whoever sees a file sees all of it. No sockets: nothing to collide, nothing for a firewall to ask.

    setup            parent -> ranks    what the parent's Python can import
    ready-R          rank -> parent     its process's pid; the rank is up
    call-K           parent -> ranks    the K-th call: (ranks that take part, (function, arguments)); or None: leave
    result-K-R       rank -> parent     how rank R ended it (a dict: the fields of `job.Outcome`)
    said-K-R         rank -> ranks      what rank R's listeners say at its end; told-K: all ranks' have been told
    thread-R         rank -> parent     the thread that runs rank R, to find it among the process's stacks
    stack-R          on SIGUSR2         where every thread of that process stands (written by faulthandler)
    output-R         always             everything rank R prints

With transport "mpi" there is one process for each rank, with "threads" one process for all (process 0).
Started by `job.py` with the arguments DIRECTORY PARENT_PID TRANSPORT, and "guard" where the ranks are watched or "-".
"""

import contextlib
import faulthandler
import inspect
import itertools
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minidist.launch import carry
from minidist.launch.output import OutputOfRanks
from minidist.launch.stacks import Frame, where

PACKAGE = Path(__file__).parents[1]
# What tells the reader of a failure nothing: who called the function, and, where ranks have missed each other, how
# comm found that out.
HARNESS = (*(str(PACKAGE / room) for room in ("launch", "testing", "jupyter")), "<frozen runpy>")
COMM = str(PACKAGE / "comm")
NAP = 1e-3  # seconds between two looks for the next call


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that others see either not at all or whole."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def takes_no_arguments(fn: Callable[..., Any]) -> bool:
    """Tell whether `fn` is to be called as fn(), and finds its communicator with world(), not as fn(comm, ...)."""
    try:
        return not inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return False


def describe(error: BaseException) -> dict[str, Any]:
    """Return how a call failed, in words only: the exception itself may not exist in the parent's Python."""
    stack = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in stack if not frame.filename.startswith(HARNESS)]
    frames = [Frame(frame.filename, frame.lineno or 0, frame.name) for frame in reversed(own)]
    if getattr(
        error, "kind", ""
    ):  # the guard's report: it says where each rank stands, and who called it tells nothing
        return {"ended": "raised", "type": type(error).__name__, "message": str(error), "frames": frames}
    if type(error).__name__ == "RankStopped":  # by name: importing comm would load NumPy
        return {"ended": "stopped", "frames": frames}
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        how = f"called sys.exit({error.code!r}) at {where(frames)}"
        return {"ended": "exited", "value": code, "message": how, "frames": frames}
    kind = type(error)
    inside = (*HARNESS, COMM) if kind.__module__.startswith("minidist.comm") else HARNESS
    shown = traceback.TracebackException(kind, error, error.__traceback__)
    # Nor does the inside of pytest.fail(...) tell anything.
    files = [frame.filename for frame in shown.stack]
    shows = [not file.startswith(inside) and "/_pytest/" not in file for file in files]
    shown.stack[:] = [frame for frame, show in zip(shown.stack, shows, strict=True) if show]
    message = "".join(traceback.format_exception_only(kind, error)).rstrip()
    text = "".join(shown.format()).rstrip()
    return {"ended": "raised", "type": kind.__name__, "message": message, "traceback": text, "frames": frames}


class Ranks:
    """The ranks of this process, and the directory through which they talk to the parent."""

    def __init__(self, directory: Path, parent: int, guarded: bool) -> None:
        self.directory = directory
        self.parent = parent
        self.guarded = guarded
        self.board: Any = None  # of the guard, for all calls

    def run(
        self, number: int, comm: Any, payload: bytes, end_output: Callable[[], None]
    ) -> BaseException | None:
        """Run call `number` on this rank, write down how it ended, and return what it raised."""
        from minidist.comm import guard

        rank, raised = comm.rank, None
        if comm.recorder:
            comm.recorder.begin_anew()  # what came before was another call's
        write_whole(self.directory / f"thread-{rank}", str(threading.get_ident()).encode())
        watched = guard.watch(comm, self.board) if self.guarded else None
        try:
            fn, args = pickle.loads(payload)
            value = fn() if not args and takes_no_arguments(fn) else fn(comm, *args)
            result = self.returned(value)
            if comm.listeners:
                self.tell_listeners(number, comm)
            if watched:
                watched.leave()
        except BaseException as error:
            raised, result = error, pickle.dumps(describe(error))
        end_output()
        write_whole(self.directory / f"result-{number}-{rank}", result)
        return raised

    def tell_listeners(self, number: int, comm: Any) -> None:
        """Let the rank that comes last tell its listeners what those of all have said; nobody waits for it."""
        from minidist.comm.events import last_words, tell_all_ended

        words = last_words(comm.listeners)
        listeners = list(comm.listeners)
        comm.listeners.clear()  # the call is over
        files = [self.directory / f"said-{number}-{rank}" for rank in range(comm.size)]
        write_whole(files[comm.rank], pickle.dumps(words))
        if all(file.exists() for file in files):
            with contextlib.suppress(FileExistsError):  # two came last
                open(self.directory / f"told-{number}", "x").close()
                tell_all_ended(listeners, [pickle.loads(file.read_bytes()) for file in files])

    def returned(self, value: Any) -> bytes:
        """Pack what a call returned, to travel to the parent."""
        try:
            return carry.dumps({"ended": "returned", "value": value})
        except Exception as error:
            raise TypeError(
                f"the function returned {type(value).__name__}, which cannot travel to the process that called "
                f"launch() ({error}); return arrays, numbers, text, or lists and dicts of them"
            ) from None

    def wait_for(self, path: Path) -> bytes:
        """Return the content of `path` once it is there."""
        while True:
            with contextlib.suppress(FileNotFoundError):
                return path.read_bytes()
            time.sleep(NAP)

    def leave_with_parent(self) -> None:
        """End this process when the one that started the job is gone: nobody else would end a rank that hangs."""
        while True:
            time.sleep(1.0)
            try:
                os.kill(self.parent, 0)
            except OSError:
                os._exit(1)

    def serve_mpi(self) -> None:
        """Be one rank of an MPI world: every call gets a new communicator of its first ranks."""
        from minidist.comm import guard, leaving, world

        everyone = world()
        leaving.leave_deaths_to_parent()
        self.redirect(everyone.rank)
        self.ready(everyone.rank)
        comm = None
        if self.guarded:  # each call is watched, not what is between them
            self.board = guard.watch(everyone).board
        for number in itertools.count():
            call = pickle.loads(self.wait_for(self.directory / f"call-{number}"))
            if call is None:
                return
            (ranks, payload), before = call, comm
            everyone.listeners = []
            if self.board is not None:
                self.board.begin()  # before anyone can wait for this rank
            comm = everyone.split(0 if everyone.rank < ranks else None, name="world")
            if before is not None:  # MPI has some 2,000; and every rank has come to the split
                before.endpoint.free()
            if comm is not None and self.guarded:
                guard.watch(comm, self.board)
                if ranks == everyone.size:
                    everyone.listeners = comm.listeners
            if comm is not None:
                self.run(number, comm, payload, sys.stdout.flush)

    def serve_threads(self) -> None:
        """Be all the ranks: every call gets new threads."""
        from minidist.comm.threads import run_ranks

        self.redirect(0)
        output = OutputOfRanks(self.print_line, sys.stdout)
        self.ready(0)
        for number in itertools.count():
            call = pickle.loads(self.wait_for(self.directory / f"call-{number}"))
            if call is None:
                return
            ranks, payload = call

            def one_rank(comm: Any, number: int = number, payload: bytes = payload) -> None:
                output.begin(comm.rank)
                raised = self.run(number, comm, payload, output.end)
                if raised is not None:
                    raise raised  # so that whoever waits for this rank stops, too

            quiet = contextlib.suppress(BaseException)
            with quiet, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                run_ranks(one_rank, ranks)

    def print_line(self, rank: int, line: str) -> None:
        """Write down a line that a rank which is a thread has printed."""
        with open(self.directory / f"output-{rank}", "a") as file:
            file.write(line + "\n")

    def redirect(self, process: int) -> None:
        """Send everything this process prints, C code included, to a file of its own."""
        output = os.open(self.directory / f"output-{process}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def ready(self, process: int) -> None:
        """Tell the parent that this process is up, and from now on show where it stands when it asks."""
        if hasattr(faulthandler, "register"):  # not on native Windows
            stacks = open(self.directory / f"stack-{process}", "w")  # noqa: SIM115 (open as long as the process lives)
            faulthandler.register(signal.SIGUSR2, stacks, all_threads=True)
        faulthandler.enable()
        write_whole(self.directory / f"ready-{process}", str(os.getpid()).encode())


def main() -> None:
    """Serve the calls of one job."""
    directory, parent, transport, guarded = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    sys.path[:] = pickle.loads((directory / "setup").read_bytes())
    ranks = Ranks(directory, parent, guarded == "guard")
    if os.name == "posix":
        threading.Thread(target=ranks.leave_with_parent, name="watches the parent", daemon=True).start()
    ranks.serve_mpi() if transport == "mpi" else ranks.serve_threads()
