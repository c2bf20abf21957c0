"""A job: ranks that are started once and carry out several calls.

    with Job(4) as job:
        outcomes = job.call(function, (argument,), ranks=3, timeout=20)

A call has a time limit that always works: at the limit the stack of every rank is read, whatever it does, and then
the job is ended from outside. After an unclean end (a rank hangs, dies, or waits for one that has failed) the job is
over, and the next call needs a new one; a call in which every rank came back, even with an exception, is clean.

The ranks' side of the conversation is `worker.py`; the words for the user are in `report.py`.
"""

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minidist import leftovers, recorded
from minidist.launch import carry, mpiexec
from minidist.launch.stacks import Frame, ask_for_stacks
from minidist.launch.worker import write_whole

START_LIMIT = 60.0  # seconds for all ranks to be up; a cold disk and a slow laptop included
GRACE = 0.3  # seconds that the others get to end by themselves once a rank has failed
LINES_KEPT = 20  # of what each rank printed
BYTES_KEPT = 65536  # in which they are looked for

# Without the working directory on the path: a `random.py` that lies there must not stand in for Python's own.
START_WORKER = "import sys; del sys.path[0]; from minidist.launch.worker import main; main()"


@dataclass(frozen=True)
class Outcome:
    """How one rank ended one call."""

    rank: int
    ended: str  # "returned" "raised" "exited" (sys.exit) "died" "hung" "stopped" (because another failed)
    value: Any = None  # what it returned; of "exited" the exit code
    type: str = ""  # name of the exception's type
    message: str = ""  # one line
    traceback: str = ""
    frames: list[Frame] = field(default_factory=list)  # where it stood, innermost first
    output: list[str] = field(default_factory=list)  # the last lines it printed in this call
    operations: list[str] = field(default_factory=list)  # what all ranks did last, if not all came back


class Job:
    """Keep `n` ranks alive for several calls.

    transport "mpi": n processes under mpiexec. "threads": one child process, in which every call gets its threads.
    guard: watch what the ranks do (`minidist/comm/guard/`).
    Raises UserError if MPI is wanted and not there, RuntimeError if the ranks do not start.
    """

    def __init__(self, n: int, transport: str = "mpi", guard: bool = False) -> None:
        self.n = n
        self.transport = transport
        self.over = False  # nothing more can be called
        self._calls = 0
        self._read: dict[int, int] = defaultdict(int)  # rank -> bytes of its output that we have read
        self._since = time.time()
        self._family: set[int] = set()
        self.directory = Path(tempfile.mkdtemp(prefix="minidist-"))
        write_whole(self.directory / "setup", pickle.dumps(sys.path))
        arguments = [str(self.directory), str(os.getpid()), transport, "guard" if guard else "-"]
        worker = [sys.executable, "-c", START_WORKER, *arguments]
        ours = str(Path(__file__).parents[2])  # the ranks import minidist from where we did
        path = {"PYTHONPATH": os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))}
        try:
            self._process = self._start(worker, path)
        except BaseException:
            shutil.rmtree(self.directory)
            raise
        try:
            self._pids = self._wait_until_ready(n if transport == "mpi" else 1)
            self._family = mpiexec.family(self._process.pid)
        except BaseException:
            self.kill()
            raise

    def _start(self, worker: list[str], path: dict[str, str]) -> subprocess.Popen[bytes]:
        if self.transport == "mpi":
            return mpiexec.start(self.n, self.directory, worker, path)
        with open(self.directory / "stderr-0", "wb") as said:
            return subprocess.Popen(
                worker,
                env={"MINIDIST_RECORDER": str(self.directory), **mpiexec.outside_any_job(), **path},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def _wait_until_ready(self, processes: int) -> list[int]:
        files = [self.directory / f"ready-{process}" for process in range(processes)]
        until = time.monotonic() + START_LIMIT
        while not all(file.exists() for file in files):
            gone = self._process.poll() is not None or mpiexec.exit_codes(self.n, self.directory)
            if gone or time.monotonic() > until:
                said = [*sorted(self.directory.glob("stderr-*")), *self.directory.glob("mpiexec")]
                text = "".join(file.read_text(errors="replace") for file in said).strip()
                raise RuntimeError(
                    f"{self.n} ranks on {self.transport} did not start:\n{text or 'they said nothing'}"
                )
            time.sleep(0.002)
        return [int(file.read_text()) for file in files]

    def call(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        *,
        ranks: int | None = None,
        timeout: float = 60.0,
        printed: Callable[[int, str], None] | None = None,
    ) -> list[Outcome]:
        """Run fn(comm, *args) on the first `ranks` ranks (default all) and return how each ended.

        A function without parameters is called as fn(), and may ask `world()` if all ranks take part. It travels by
        cloudpickle. `timeout` is in seconds; `printed(rank, line)` is told what the ranks print while they run.
        """
        if self.over:
            raise RuntimeError("this job has ended; make a new Job for further calls")
        ranks = self.n if ranks is None else ranks
        number, self._calls = self._calls, self._calls + 1
        call = pickle.dumps((ranks, carry.dumps((fn, tuple(args)))))
        write_whole(self.directory / f"call-{number}", call)
        try:
            return self._outcomes(number, ranks, timeout, printed)
        except BaseException:  # Ctrl-C: the ranks are still at work
            self.kill()
            raise

    def _outcomes(
        self, number: int, ranks: int, timeout: float, printed: Callable[[int, str], None] | None
    ) -> list[Outcome]:
        """Wait until every rank has ended call `number`, or it is clear that some will not."""
        lines: list[deque[str]] = [deque(maxlen=LINES_KEPT) for _ in range(ranks)]
        results: dict[int, dict[str, Any]] = {}
        now = began = time.monotonic()
        limit, failed_at, look_again = now + timeout, float("inf"), now + 0.1
        while len(results) < ranks:
            time.sleep(0.001 if now < began + 0.1 else 0.005)
            now = time.monotonic()
            self._collect(number, ranks, results)
            if printed:
                self._read_output(lines, printed)
            if now > look_again:
                look_again = now + 0.1
                self._note_deaths(ranks, results)
            if any(result["ended"] != "returned" for result in results.values()):
                failed_at = min(failed_at, now)
            if now > min(limit, failed_at + GRACE):
                break
        self._collect(number, ranks, results)
        unfinished = [rank for rank in range(ranks) if rank not in results]
        if unfinished:
            stacks = self._stacks(unfinished)
            why = "hung" if now > limit and failed_at == float("inf") else "stopped"
            results.update({rank: {"ended": why, "frames": stacks[rank]} for rank in unfinished})
        self._read_output(lines, printed, last=True)
        died, told = [rank for rank in range(ranks) if results[rank]["ended"] == "died"], []
        if unfinished or died:
            told = recorded.report(mpiexec.recorder_directory(self.directory), died[:1])
            self.kill()
        return [
            Outcome(rank, output=list(lines[rank]), operations=told, **results[rank]) for rank in range(ranks)
        ]

    def _collect(self, number: int, ranks: int, results: dict[int, dict[str, Any]]) -> None:
        for rank in range(ranks):
            if rank not in results:
                with contextlib.suppress(FileNotFoundError):
                    content = (self.directory / f"result-{number}-{rank}").read_bytes()
                    results[rank] = pickle.loads(content)

    def _read_output(
        self, lines: list[deque[str]], printed: Callable[[int, str], None] | None, last: bool = False
    ) -> None:
        """Read what the ranks have printed since we last looked: whole lines, and at the `last` look the rest."""
        for rank, kept in enumerate(lines):
            path = self.directory / f"output-{rank}"
            if not path.exists():
                continue
            if not printed:  # a rank may print more than fits into memory
                self._read[rank] = max(self._read[rank], path.stat().st_size - BYTES_KEPT)
            with open(path, "rb") as file:
                file.seek(self._read[rank])
                new = file.read()
            if not last:
                new = new[: new.rfind(b"\n") + 1]
            self._read[rank] += len(new)
            for line in new.decode(errors="replace").splitlines():
                kept.append(line)
                if printed:
                    printed(rank, line)

    def _note_deaths(self, ranks: int, results: dict[int, dict[str, Any]]) -> None:
        """Give a result to ranks whose process is gone."""
        ended = self._process.poll()
        codes = mpiexec.exit_codes(self.n, self.directory)
        if self.transport == "threads" and ended is not None:
            codes = dict.fromkeys(range(ranks), ended)
        for rank in range(ranks):
            if rank in codes:
                results.setdefault(rank, {"ended": "died", "message": mpiexec.how_it_died(codes[rank])})
            elif ended is not None or codes:  # MPI ends all the others when one dies
                results.setdefault(
                    rank, {"ended": "stopped" if codes else "died", "message": "ended with mpiexec"}
                )

    def _stacks(self, ranks: list[int]) -> dict[int, list[Frame]]:
        """Ask the processes of `ranks` where they stand."""
        process_of = {rank: rank if self.transport == "mpi" else 0 for rank in ranks}
        asked = {p: (self._pids[p], self.directory / f"stack-{p}") for p in set(process_of.values())}
        stacks_of = ask_for_stacks(asked)
        stacks = {}
        for rank in ranks:
            thread = self.directory / f"thread-{rank}"
            identifier = int(thread.read_text()) if thread.exists() else 0
            stacks[rank] = stacks_of[process_of[rank]].get(identifier, [])
        return stacks

    def kill(self) -> None:
        """End the job at once and remove all that it made."""
        if not self.over:
            self.over = True
            mpiexec.end(self._process, self._family)
            leftovers.remove_since(self._since)
            shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        """Let the ranks leave in order; end them if they do not."""
        if not self.over:
            write_whole(self.directory / f"call-{self._calls}", pickle.dumps(None))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5.0)
            self.kill()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close() if kind is None else self.kill()
