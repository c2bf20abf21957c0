"""Starting ranks from any Python, and ending them.

`minidist.launch(fn, 4)` runs a function on four ranks and returns what each returned; `python -m minidist.launch
-n 4 script.py` runs a program. Both work from a plain Python, a notebook, or a script; programs that you start with
`mpiexec` yourself do not need this.

Read next: `job.py` (ranks that stay for several calls), `worker.py` (their side), `mpiexec.py` (what an MPI job is
made of, and how it ends), `__main__.py` (the command).
"""

import contextlib
import ctypes
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from minidist.errors import UserError
from minidist.launch.job import Job, Outcome
from minidist.launch.output import OutputOfRanks
from minidist.launch.report import causes, explain
from minidist.launch.stacks import Frame
from minidist.launch.worker import describe, takes_no_arguments

__all__ = ["Job", "LaunchTimeout", "Outcome", "RankFailed", "launch"]


class RankFailed(RuntimeError):
    """Say which rank failed, with its traceback, and what the others were doing.

    `rank` is the lowest rank that failed by itself; `outcomes` tells how each rank ended.
    """

    def __init__(self, message: str, rank: int, outcomes: list[Outcome]) -> None:
        super().__init__(message)
        self.rank = rank
        self.outcomes = outcomes


class LaunchTimeout(RuntimeError):
    """Say where each rank stood when the time limit was reached."""

    def __init__(self, message: str, outcomes: list[Outcome]) -> None:
        super().__init__(message)
        self.outcomes = outcomes


def launch(
    fn: Callable[..., Any],
    n: int,
    *args: Any,
    transport: str = "mpi",
    timeout: float = 60.0,
    guard: bool = False,
) -> list[Any]:
    """Run fn(comm, *args) on `n` ranks and return what each rank returned, by rank.

    A function without parameters is called as fn() and finds its communicator with `minidist.comm.world()`.
    transport "mpi" starts n processes; fn, args and results travel by cloudpickle, so functions of a notebook or a
    script work. "threads" runs the ranks as threads of this process: their variables can be looked at, and nothing
    is copied. `timeout` is in seconds. guard: find calls that do not fit together, and ranks that wait for ever.

    Raises RankFailed, LaunchTimeout, and UserError if there is no MPI.
    """
    if not isinstance(n, int) or n < 1:
        raise UserError(f"the number of ranks must be an integer of at least 1, not {n!r}")
    if transport == "threads":
        outcomes = run_on_threads(fn, n, args, timeout=timeout, printed=marked_lines(sys.stdout), guard=guard)
    elif transport == "mpi":
        with Job(n, guard=guard) as job:
            outcomes = job.call(fn, args, timeout=timeout, printed=marked_lines(sys.stdout))
    else:
        raise UserError(f'transport must be "mpi" or "threads", not {transport!r}')
    if all(outcome.ended == "returned" for outcome in outcomes):
        return [outcome.value for outcome in outcomes]
    cause = causes(outcomes)[0]
    message = explain(outcomes, transport, timeout, with_output=False)  # it has been printed already
    if cause.ended == "hung":
        raise LaunchTimeout(message, outcomes)
    raise RankFailed(message, cause.rank, outcomes)


def _ask_to_stop(threads: Iterable[int]) -> None:
    """Raise SystemExit in threads, wherever they are in Python's code."""
    for thread in threads:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))


def marked_lines(file: TextIO) -> Callable[[int, str], None]:
    """Print each line into `file` with its rank before it."""
    return lambda rank, line: print(f"[rank {rank}] {line}\n", end="", file=file, flush=True)


def run_on_threads(
    fn: Callable[..., Any],
    n: int,
    args: tuple[Any, ...] = (),
    *,
    timeout: float,
    printed: Callable[[int, str], None],
    guard: bool = False,
) -> list[Outcome]:
    """Run fn(comm, *args) on n ranks that are threads of this process, and return how each ended.

    `printed(rank, line)` gets what they print. Threads cannot be ended: those that still run at the limit are asked to
    stop by an exception, which a thread that waits outside of Python does not see.
    """
    from minidist.comm.guard import watch
    from minidist.comm.threads import run_ranks

    results: dict[int, dict[str, Any]] = {}
    threads: dict[int, int] = {}
    over = threading.Event()
    output = OutputOfRanks(printed, sys.stdout)

    def one_rank(comm: Any) -> None:
        threads[comm.rank] = threading.get_ident()
        if over.is_set():  # before this rank began
            return
        output.begin(comm.rank)
        if guard:
            watch(comm)
        try:
            value = fn() if not args and takes_no_arguments(fn) else fn(comm, *args)
            results[comm.rank] = {"ended": "returned", "value": value}
        except BaseException as error:
            results[comm.rank] = describe(error)
            raise
        finally:
            output.end()

    def all_ranks() -> None:
        with contextlib.suppress(BaseException):  # each rank has noted its own
            run_ranks(one_rank, n)

    everyone = threading.Thread(target=all_ranks, name="minidist ranks", daemon=True)
    with contextlib.redirect_stdout(output):
        everyone.start()
        try:
            everyone.join(timeout)
        except KeyboardInterrupt:
            over.set()
            _ask_to_stop([threads[rank] for rank in threads if rank not in results])
            raise
    over.set()
    hung = [rank for rank in range(n) if rank not in results]
    frames = sys._current_frames()
    for rank in hung:
        frame = frames.get(threads.get(rank, 0))
        stack = traceback.extract_stack(frame) if frame else []
        stands = [Frame(line.filename, line.lineno or 0, line.name) for line in reversed(stack)]
        results[rank] = {"ended": "hung", "frames": stands}
    outcomes = [Outcome(rank, **results[rank]) for rank in range(n)]
    # Now, and not before: a rank that stops says so in `results`.
    _ask_to_stop([threads[rank] for rank in hung if rank in threads])
    return outcomes
