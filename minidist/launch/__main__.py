"""The command: run a program on n ranks and own the terminal.

    python -m minidist.launch -n 4 -m minidist.train --epochs 5
    python -m minidist.launch -n 4 --timeout 60 script.py arguments

It does what `mpiexec -n 4 python ...` does, and besides: it finds the right mpiexec, keeps the lines of different
ranks apart, draws rank 0's progress as a bar, ends the job at a time limit and says where each rank stood.

Each rank's output comes through named pipes of its own, opened by a line of shell before the program starts.
"""

import argparse
import os
import runpy
import selectors
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import NoReturn

from minidist import leftovers, recorded
from minidist.errors import UserError
from minidist.launch import mpiexec, run_on_threads
from minidist.launch.ending import Ending
from minidist.launch.report import causes, explain
from minidist.launch.stacks import ask_for_stacks, where
from minidist.launch.terminal import Terminal
from minidist.machine import end_with_parent

GRACE = 0.5  # seconds in which MPI itself may end the job of a rank that has failed
# Exit codes after which the same command would end the same way, or somebody wants it to have ended: 0, a wrong command
# line, the time limit, Ctrl-C, SIGTERM.
NO_RESTART = (0, 2, 124, 130, 143)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line: our options end where the program's begin."""
    parser = argparse.ArgumentParser(
        prog="python -m minidist.launch",
        usage="python -m minidist.launch -n N [--timeout SECONDS] [--max-restarts N] [--transport mpi|threads] "
        "[--guard] (SCRIPT | -m MODULE) ...",
        description="Run a program on n ranks.",
        epilog="example: python -m minidist.launch -n 4 -m minidist.train --epochs 5",
    )
    parser.add_argument("-n", type=int, required=True, metavar="N", help="number of ranks")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end the job after this time")
    parser.add_argument(
        "--transport",
        choices=["mpi", "threads"],
        default="mpi",
        help="threads: all ranks in one process, no MPI needed",
    )
    parser.add_argument(
        "--guard",
        action="store_true",
        help="find calls that do not fit together, and ranks that wait for ever",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=0,
        metavar="N",
        help="start the job again, up to N times, if a rank fails: minidist.train goes on from its newest checkpoint",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM ...",
        help="a script (or after -m a module) and its arguments",
    )
    given = parser.parse_args(arguments)
    if not given.program:
        parser.error("which program? Give a script, or -m and a module")
    if given.n < 1:
        parser.error(f"-n must be at least 1, not {given.n}")
    if given.timeout is not None and not given.timeout > 0:
        parser.error(f"--timeout must be more than 0 seconds, not {given.timeout:g}")
    if given.max_restarts < 0:
        parser.error(f"--max-restarts must be at least 0, not {given.max_restarts}")
    if given.max_restarts and given.transport == "threads":
        parser.error(
            "--max-restarts needs --transport mpi: threads end with the process that would restart them"
        )
    if not given.module and not Path(given.program[0]).is_file():
        parser.error(f"there is no script {given.program[0]!r} here")
    return given


def run_with_restarts(given: argparse.Namespace) -> int:
    """Run the program, and again while it fails and restarts are left; return the last exit code."""
    ending = Ending()
    for restart in range(given.max_restarts + 1):
        code = run_on_mpi(given, ending, restart)
        if code in NO_RESTART or restart == given.max_restarts or ending.asked:
            break
        print(
            f"minidist.launch: restart {restart + 1} of {given.max_restarts}, after exit code {code}",
            file=sys.stderr,
            flush=True,
        )
    return code


def run_on_mpi(given: argparse.Namespace, ending: Ending, restart: int) -> int:
    """Run the program on MPI ranks and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="minidist-", ignore_cleanup_errors=True) as name:
        directory, since = Path(name), time.time()
        terminal = Terminal(directory / "progress" if sys.stderr.isatty() else None, sys.stdout, sys.stderr)
        extra = {"MINIDIST_PROGRESS": str(terminal.progress_file)} if terminal.progress_file else {}
        if restart:
            extra["MINIDIST_RESTART"] = str(restart)
        pipes = selectors.DefaultSelector()
        for rank in range(given.n):
            for stream in ("stdout", "stderr"):
                path = directory / f"{stream}-{rank}"
                os.mkfifo(path)
                pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for the other side
                pipes.register(pipe, selectors.EVENT_READ, (stream, rank))
        program = [sys.executable, *(["-m"] if given.module else []), *given.program]
        job = mpiexec.start(given.n, directory, program, extra, end_with_parent)
        family: set[int] = set()
        limit, failed_at = time.monotonic() + (given.timeout or float("inf")), float("inf")
        try:
            while job.poll() is None and time.monotonic() < failed_at + GRACE:
                pump(pipes, terminal, 0.05)
                if time.monotonic() > limit:
                    explain_limit(given, directory, terminal)
                    hang_up(pipes)  # what ranks say of the end that we are about to make of them is no news
                    return 124  # as timeout(1)
                if ending.asked:
                    ending.hand_on(pids(given.n, directory), given.n)
                    if time.monotonic() > ending.at:
                        return 143
                if any(mpiexec.exit_codes(given.n, directory).values()):
                    failed_at = min(failed_at, time.monotonic())  # until MPI is up, mpiexec may not notice it
                if not family and len(pids(given.n, directory)) == given.n:
                    family = mpiexec.family(job.pid)
            pump(pipes, terminal, 0.0)
            # After os._exit(0) on one rank, mpiexec sometimes calls that a success, and has killed the others.
            codes = mpiexec.exit_codes(given.n, directory)
            if job.returncode == 0 and len(codes) == given.n and not any(codes.values()):
                return 0
            return explain_end(job.returncode, given.n, directory, terminal)
        except KeyboardInterrupt:
            hang_up(pipes)  # as at the time limit
            raise
        finally:
            if job.returncode != 0:
                mpiexec.end(job, family)
                leftovers.remove_since(since)
            pump(pipes, terminal, 0.0)
            hang_up(pipes)
            terminal.close()


def hang_up(pipes: selectors.BaseSelector) -> None:
    """Listen to the ranks no more."""
    for key in list(pipes.get_map().values()):
        pipes.unregister(key.fd)
        os.close(key.fd)


def pump(pipes: selectors.BaseSelector, terminal: Terminal, patience: float) -> None:
    """Hand on what the ranks have printed; wait up to `patience` seconds for something."""
    terminal.draw()
    while ready := pipes.select(patience):
        patience, got = 0.0, False
        for key, _ in ready:
            data = os.read(key.fd, 65536)
            got = got or bool(data)
            stream, rank = key.data
            terminal.write(stream, rank, data)
        if not got:  # a pipe whose writer is gone is always ready
            time.sleep(0.01)
            break


def pids(n: int, directory: Path) -> dict[int, int]:
    """Return the process of each rank that has started."""
    files = {rank: directory / f"pid-{rank}" for rank in range(n)}
    texts = {rank: file.read_text() for rank, file in files.items() if file.exists()}
    return {rank: int(text) for rank, text in texts.items() if text}


def explain_limit(given: argparse.Namespace, directory: Path, terminal: Terminal) -> None:
    """Say where each rank stands when the time is over."""
    ranks = pids(given.n, directory)
    stacks = ask_for_stacks({rank: (pid, directory / f"stack-{rank}") for rank, pid in ranks.items()})
    terminal.say(f"minidist.launch: the job did not end within {given.timeout:g} s and was ended")
    for rank, threads in sorted(stacks.items()):
        *_, frames = threads.values() or [[]]  # the main thread comes last
        terminal.say(f"rank {rank} stands at {where(frames)}")
    for line in recorded.report(mpiexec.recorder_directory(directory)):
        terminal.say(line)


def explain_end(code: int | None, n: int, directory: Path, terminal: Terminal) -> int:
    """Say what ended a job if its ranks could not; return the exit code of the rank that was the cause."""
    codes = mpiexec.exit_codes(n, directory)
    # Open MPI ends the others by SIGTERM: none of them was the cause, even if that one ended with 0.
    codes = {rank: own for rank, own in codes.items() if own != 128 + signal.SIGTERM} or codes
    codes = {rank: own for rank, own in codes.items() if own} or codes
    for died in dict.fromkeys(codes.values()):
        if not terminal.said_something or died in (128 + signal.SIGKILL, 128 + signal.SIGSEGV):
            first, *same = [rank for rank, own in codes.items() if own == died]
            more = f" (the same on rank{'s' * (len(same) > 1)} {', '.join(map(str, same))})" if same else ""
            terminal.say(f"minidist.launch: rank {first} {mpiexec.how_it_died(died)}{more}")
            for line in recorded.report(mpiexec.recorder_directory(directory), [first]):
                terminal.say(line)
    if not codes and not terminal.said_something:
        terminal.say((directory / "mpiexec").read_text(errors="replace"))
    return next((own for own in codes.values() if own), code if code and code > 0 else 1)


def run_in_this_process(given: argparse.Namespace) -> int:
    """Run the program once for each rank, as threads of this process, and return its exit code."""
    sys.argv = given.program
    name = given.program[0]
    if not given.module:
        sys.path[0] = str(Path(name).resolve().parent)  # as Python does for a script

    def program() -> None:
        try:
            if given.module:
                runpy.run_module(name, run_name="__main__")
            else:
                code = compile(Path(name).read_bytes(), name, "exec")
                exec(code, {"__name__": "__main__", "__file__": name})
        except SystemExit as error:
            if error.code not in (None, 0):
                raise

    limit = given.timeout or threading.TIMEOUT_MAX
    show = Terminal(None, sys.stdout, sys.stderr)
    outcomes = run_on_threads(program, given.n, timeout=limit, printed=partial(show.line, "stdout"))
    if all(outcome.ended == "returned" for outcome in outcomes):
        return 0
    cause = causes(outcomes)[0]
    if cause.type == "UserError":  # its sentence says it all
        leave(cause.message.partition(": ")[2], 2)
    codes = {"hung": 124, "exited": cause.value}
    leave(explain(outcomes, "threads", limit, with_output=False), codes.get(cause.ended, 1))


def leave(message: str, code: int) -> NoReturn:
    """Say it and end the process, whatever its other threads do."""
    print(message, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(code)


def main() -> NoReturn:
    """Run the command."""
    given = parse(sys.argv[1:])
    if given.guard:
        os.environ["MINIDIST_GUARD"] = "1"
    try:
        sys.exit(run_with_restarts(given) if given.transport == "mpi" else run_in_this_process(given))
    except UserError as error:
        leave(f"minidist.launch: {error}", 2)
    except KeyboardInterrupt:
        leave("minidist.launch: interrupted; all ranks have been ended", 130)


if __name__ == "__main__":
    main()
