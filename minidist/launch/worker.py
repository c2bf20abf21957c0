"""What runs on a rank of a `Job`: wait for a call, run it, write down how it ended.

Parent and ranks talk through files in the job's private directory, each written under a temporary name and then
renamed, so that whoever sees a file sees all of it. No sockets: nothing to collide, nothing for a firewall to ask.

    setup            parent -> ranks    what the parent's Python can import
    ready-R          rank -> parent     its process's pid; the rank is up
    call-K           parent -> ranks    the K-th call: (ranks that take part, (function, arguments)); or None: leave
    result-K-R       rank -> parent     how rank R ended it (a dict, see `_run`)
    thread-R         rank -> parent     the thread that runs rank R, to find it among the process's stacks
    stack-R          on SIGUSR2         where every thread of that process stands (written by faulthandler)
    output-R         always             everything rank R prints

With transport "mpi" there is one process for each rank, with "threads" one process for all (process 0).
Started by `job.py` as `python -m minidist.launch.worker DIRECTORY PARENT_PID TRANSPORT`.
"""

import contextlib
import faulthandler
import inspect
import io
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
from minidist.launch.stacks import Frame, where

HARNESS = tuple(str(Path(__file__).parents[1] / room) for room in ("launch", "testing"))
NAP = 1e-3  # seconds between two looks for the next call


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that others see either not at all or whole."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_bytes(content)
    unfinished.rename(path)


def is_harness(file: str) -> bool:
    """Tell whether this file is one that only carries the user's function to its ranks."""
    return file.startswith(HARNESS)


def takes_no_arguments(fn: Callable[..., Any]) -> bool:
    """Tell whether `fn` is to be called as fn(), and finds its communicator with world(), not as fn(comm, ...)."""
    try:
        return not inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return False


def describe(error: BaseException) -> dict[str, Any]:
    """Return how a call failed, in words only: the exception itself may not exist in the parent's Python."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_harness(frame.filename)]
    frames = [Frame(frame.filename, frame.lineno or 0, frame.name) for frame in reversed(own)]
    if type(error).__name__ == "RankStopped":
        return {"ended": "stopped", "frames": frames}
    if isinstance(error, SystemExit):
        return {
            "ended": "exited",
            "message": f"called sys.exit({error.code!r}) at {where(frames)}",
            "frames": frames,
        }
    inner = error.__traceback__
    while inner is not None and is_harness(inner.tb_frame.f_code.co_filename):
        inner = inner.tb_next  # our own frames tell the reader nothing
    text = "".join(traceback.format_exception(type(error), error, inner)).rstrip()
    message = "".join(traceback.format_exception_only(type(error), error)).rstrip()
    kind = type(error).__name__
    return {"ended": "raised", "type": kind, "message": message, "traceback": text, "frames": frames}


class Ranks:
    """The ranks of this process, and the directory through which they talk to the parent."""

    def __init__(self, directory: Path, parent: int) -> None:
        self.directory = directory
        self.parent = parent

    def run(self, number: int, comm: Any, payload: bytes) -> BaseException | None:
        """Run call `number` on this rank, write down how it ended, and return what it raised."""
        rank, raised = comm.rank, None
        write_whole(self.directory / f"thread-{rank}", str(threading.get_ident()).encode())
        try:
            fn, args = pickle.loads(payload)
            value = fn() if not args and takes_no_arguments(fn) else fn(comm, *args)
            result = carry.dumps({"ended": "returned", "value": value})
        except BaseException as error:
            raised, result = error, pickle.dumps(describe(error))
        sys.stdout.flush()
        write_whole(self.directory / f"result-{number}-{rank}", result)
        return raised

    def wait_for(self, path: Path) -> bytes:
        """Return the content of `path` once it is there; leave if the parent is gone."""
        for look in itertools.count(1):
            with contextlib.suppress(FileNotFoundError):
                return path.read_bytes()
            if look % 500 == 0 and not self.parent_lives():
                os._exit(1)
            time.sleep(NAP)
        raise AssertionError("unreachable")

    def parent_lives(self) -> bool:
        """Tell whether the process that started the job is still there."""
        try:
            os.kill(self.parent, 0)
        except OSError:
            return False
        return self.directory.exists()

    def serve_mpi(self) -> None:
        """Be one rank of an MPI world: every call gets a new communicator of its first ranks."""
        from minidist.comm import world

        everyone = world()
        self.redirect(everyone.rank)
        self.ready(everyone.rank)
        for number in itertools.count():
            call = pickle.loads(self.wait_for(self.directory / f"call-{number}"))
            if call is None:
                return
            ranks, payload = call
            comm = everyone.split(0 if everyone.rank < ranks else None)
            if comm is not None:
                self.run(number, comm, payload)

    def serve_threads(self) -> None:
        """Be all the ranks: every call gets new threads."""
        from minidist.comm.threads import run_ranks

        self.redirect(0)
        router = OutputOfThreads(self.directory)
        self.ready(0)
        for number in itertools.count():
            call = pickle.loads(self.wait_for(self.directory / f"call-{number}"))
            if call is None:
                return
            ranks, payload = call

            def one_rank(comm: Any, number: int = number, payload: bytes = payload) -> None:
                router.begin(comm.rank)
                raised = self.run(number, comm, payload)
                if raised is not None:
                    raise raised  # so that whoever waits for this rank stops, too

            quiet = contextlib.suppress(BaseException)
            with quiet, contextlib.redirect_stdout(router), contextlib.redirect_stderr(router):
                run_ranks(one_rank, ranks)

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
            faulthandler.register(
                signal.SIGUSR2, open(self.directory / f"stack-{process}", "w"), all_threads=True
            )
        faulthandler.enable()
        write_whole(self.directory / f"ready-{process}", str(os.getpid()).encode())


class OutputOfThreads(io.TextIOBase):
    """A stdout for ranks that are threads: each thread's lines go to its own rank's file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mine = threading.local()

    def begin(self, rank: int) -> None:
        """Say that this thread is `rank`."""
        self.mine.file = open(self.directory / f"output-{rank}", "a", buffering=1)

    def write(self, text: str) -> int:
        """Write to this thread's file; a thread that the user started himself is shown as rank 0's."""
        return getattr(self.mine, "file", sys.__stdout__).write(text)

    def flush(self) -> None:
        """Pass on what is still here."""
        getattr(self.mine, "file", sys.__stdout__).flush()


def main() -> None:
    """Serve the calls of one job."""
    directory, parent, transport = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    sys.path[:] = pickle.loads((directory / "setup").read_bytes())
    ranks = Ranks(directory, parent)
    ranks.serve_mpi() if transport == "mpi" else ranks.serve_threads()


if __name__ == "__main__":
    main()
