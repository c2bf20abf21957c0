"""Run one program on some ranks with the guard on, and see what it says and what it leaves behind.

A program runs as a student runs it, by `python -m minidist.launch`. The guard writes its reports to a file, too
(MINIDIST_GUARD_REPORT). The job has a folder of its own for temporary files, and carries the name of the report's file
in its environment: so what is left of it, files and processes, can be told from everything else on the machine.

Read next: `table.py`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from minidist.faultbench.judge import Run
from minidist.faultbench.programs import Program
from minidist.launch import mpiexec
from minidist.leftovers import in_use

PATIENCE = 2.0  # seconds in which a job's last processes may end after it


def run(program: Program, n: int, transport: str, limit: float, without: str = "") -> Run:
    """Run a program on n ranks; at most `limit` seconds. without: detectors of the guard that are off."""
    with tempfile.TemporaryDirectory(prefix="faultbench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        temporary, report = directory / "tmp", directory / "reports"
        temporary.mkdir()
        environment = {
            **mpiexec.outside_any_job(),
            "TMPDIR": str(temporary),
            "MINIDIST_GUARD": "1",
            "MINIDIST_GUARD_REPORT": str(report),
            "MINIDIST_GUARD_WITHOUT": without,
        }
        options = ["-n", str(n), "--timeout", str(limit), "--transport", transport, str(program.path)]
        usual = listening_for_mpi() if transport == "mpi" else 0
        shared, began, sockets = in_shared_memory(), time.monotonic(), 0
        with open(directory / "out", "w+") as out, open(directory / "err", "w+") as err:
            job = subprocess.Popen(
                [sys.executable, "-m", "minidist.launch", *options], env=environment, stdout=out, stderr=err
            )
            look_at = began + 0.6
            while job.poll() is None:
                time.sleep(0.01)
                if time.monotonic() > look_at:  # every rank is up by now, or is soon
                    look_at += 1.0
                    sockets = max([sockets, *map(listening, ranks_of(str(report)))])
            seconds = time.monotonic() - began
            out.seek(0), err.seek(0)
            said = (out.read(), err.read())
        reports = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
        left = remains(str(report), temporary, shared)
        if sockets > usual:
            left.append(f"a rank listened on {sockets} sockets, of which MPI's own are {usual}")
        return Run(job.returncode, *said, seconds, reports, left)


def processes_of(mark: str) -> list[int]:
    """Give the living processes whose environment holds `mark`."""
    found = []
    for pid, _, _ in mpiexec.processes():
        try:
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue  # it has just ended, or is another user's
    return found


def ranks_of(mark: str) -> list[int]:
    """Give the ranks among the processes of a job: mpiexec and its helpers listen by their nature."""
    return [pid for pid in processes_of(mark) if "python" in _program(pid)]


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""  # it has just ended


def listening(pid: int) -> int:
    """Count the sockets of a process on which it listens."""
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(table):
            rows += [line.split() for line in Path(table).read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    count = 0
    with contextlib.suppress(OSError):  # the process may end meanwhile
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                count += os.readlink(path) in sockets
    return count


@functools.cache
def listening_for_mpi() -> int:
    """Count on how many sockets a rank listens that does nothing but start MPI: those are not ours."""
    program = "import os; from minidist.comm.world import load_mpi, start_mpi; start_mpi(load_mpi()); "
    program += "from minidist.faultbench.run import listening; "
    with tempfile.TemporaryDirectory(prefix="faultbench-") as name:
        path = Path(name, "start_mpi.py")
        path.write_text(f"{program}print(listening(os.getpid()))")
        command = [sys.executable, "-m", "minidist.launch", "-n", "2", str(path)]
        said = subprocess.run(command, env=mpiexec.outside_any_job(), capture_output=True, text=True).stdout
    return max(int(line.split()[-1]) for line in said.splitlines())


def in_shared_memory() -> set[str]:
    """Give the names in shared memory that could be a job's."""
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def remains(mark: str, temporary: Path, before: set[str]) -> list[str]:
    """Say what a job that has ended has left: processes, temporary files, shared memory that nobody uses."""
    until = time.monotonic() + PATIENCE
    while (pids := processes_of(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    found = [f"process {pid}" for pid in pids]
    found += [f"temporary file {path.name}" for path in temporary.iterdir()]
    names = in_shared_memory() - before
    while names and time.monotonic() < until:  # other jobs on this machine have theirs for a moment
        time.sleep(0.05)
        names &= in_shared_memory() - {Path(path).name for path in in_use()}
    return found + [f"/dev/shm/{name}" for name in sorted(names)]


def what_mpi4py_does(program: Program, n: int, limit: float = 6.0) -> str:
    """Run a program on plain mpi4py, by `plain.py` beside the programs; say in a word or two what comes of it."""
    plain = program.path.parents[1] / "plain.py"
    command = [mpiexec.find_mpiexec(), "-n", str(n), sys.executable, str(plain), str(program.path)]
    with tempfile.TemporaryDirectory(prefix="faultbench-", ignore_cleanup_errors=True) as name:
        job = subprocess.Popen(
            command,
            env=mpiexec.environment(Path(name)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            out, _ = job.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            mpiexec.end(job, set())
            return "hangs"
    if job.returncode != 0:
        return "crashes"
    wanted, printed = program.prints(n), out.strip()
    return "says nothing" if wanted is None or printed == wanted else "wrong numbers"
