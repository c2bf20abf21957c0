"""Finding mpiexec, what each MPI needs to be told, and leaving nothing behind.

An MPI job is a small tree of processes: mpiexec, a helper of its own (MPICH's hydra_pmi_proxy, Open MPI's prted),
and the ranks. MPICH puts the helper and every rank into sessions of their own, so ending "the process group" is not
enough: we note the whole tree, ask politely, and then end whoever is still there.

Read next: `job.py`, which starts such a tree and keeps it for several calls.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minidist import recorded
from minidist.errors import UserError

HOW_TO_GET_MPI = (
    "install both with `pip install mpich mpi4py` (Linux, macOS, WSL2; on native Windows the mpich package is an "
    'empty stub, use WSL2), or run without MPI: transport="threads"'
)


def find_mpiexec() -> str:
    """Return the path of the mpiexec that belongs to this Python.

    It is looked for beside the interpreter first: a notebook kernel often runs in an environment that was never
    activated, and another MPI's mpiexec on the PATH would start n worlds of one rank each.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise UserError(f"transport='mpi' needs the package mpi4py, which is not installed: {HOW_TO_GET_MPI}")
    beside = Path(sys.executable).parent
    found = shutil.which("mpiexec", path=str(beside)) or shutil.which("mpiexec")
    if found is None:
        raise UserError(
            f"transport='mpi' needs mpiexec; there is none in {beside} or on the PATH: {HOW_TO_GET_MPI}"
        )
    return found


def outside_any_job() -> dict[str, str]:
    """Return this process's environment without what makes it a rank: what it starts must not believe it is one."""
    of_a_job = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MPI_LOCAL")
    return {name: value for name, value in os.environ.items() if not name.startswith(of_a_job)}


def environment(temporary: Path) -> dict[str, str]:
    """Return the environment for mpiexec: this process's, and what each MPI needs on one machine.

    Each setting is read by one MPI and ignored by the other. MPI's own temporary files go to `temporary`, which
    the caller removes; the ranks get the user's folder back from MINIDIST_TMPDIR.
    """
    settings = outside_any_job()
    settings["MINIDIST_TMPDIR"] = os.environ.get("TMPDIR", "")
    settings["TMPDIR"] = str(temporary)
    wanted = {
        "MINIDIST_RECORDER": str(temporary),  # where ranks keep their last operations (recorded.py)
        # Open MPI: run as root (containers), with more ranks than cores, without probing networks
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "sm,self,tcp",
        "OMPI_MCA_osc": "^ucx",
        "OMPI_MCA_smsc": "^cma",  # else a message that is too large is written past the end of the receiver's array
    }
    return {**wanted, **settings}  # what the user has set wins


# Run by sh on each rank; $0 is the job's directory, "$@" the program. The program's pid is noted; when it ends, its
# exit code, before mpiexec hears of it and ends the others: so the one that has a code was the first. A death by a
# signal is passed on as one: only then does mpiexec end the others at once, whatever they do. A SIGTERM is the
# program's affair; and if nobody is there any more who would remove the job's directory, this does.
ON_EACH_RANK = """
trap : TERM
rank=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}}
if [ -n "$MINIDIST_TMPDIR" ]; then export TMPDIR="$MINIDIST_TMPDIR"; else unset TMPDIR; fi
export MINIDIST_STACKS="$0/stack-$rank"
sh -c 'rank=$1; shift; echo $$ >"$0/pid-$rank"; exec "$@" >"$0/stdout-$rank" 2>"$0/stderr-$rank"' "$0" $rank "$@"
code=$?
echo $code >"$0/exit-$rank"
kill -0 $MINIDIST_LAUNCHER 2>/dev/null || rm -rf "$0"
trap - TERM
if [ $code -gt 128 ]; then kill -$((code - 128)) $$; fi
exit $code
"""


def start(
    n: int,
    directory: Path,
    program: list[str],
    more_environment: dict[str, str],
    with_us: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `program` on n ranks, in a session of its own; what mpiexec itself says goes to DIRECTORY/mpiexec.

    with_us: run in mpiexec's process before it begins: `machine.end_with_parent`, or nothing.
    """
    remove_directories_of_the_dead(directory)
    recorded.remove(recorder_directory(directory))
    with open(directory / "mpiexec", "wb") as said:
        return subprocess.Popen(
            [find_mpiexec(), "-n", str(n), "sh", "-c", ON_EACH_RANK, str(directory), *program],
            env={**environment(directory), "MINIDIST_LAUNCHER": str(os.getpid()), **more_environment},
            preexec_fn=with_us,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us: we end the job in our own order
        )


def remove_directories_of_the_dead(directory: Path) -> None:
    """Note whose directory this is, and remove those beside it whose owner was killed before it could do so."""
    with contextlib.suppress(OSError):  # no Linux
        numbers = os.readlink("/proc/self/ns/pid")  # in which process numbers mean something
        (directory / "owner").write_text(f"{os.getpid()} {numbers}")
        for owner in directory.parent.glob("minidist-*/owner"):
            with contextlib.suppress(OSError, ValueError):  # another user's, or just being written
                pid, where = owner.read_text().split()
                if where == numbers and not Path("/proc", pid).exists():
                    shutil.rmtree(owner.parent, ignore_errors=True)


def recorder_directory(directory: Path) -> Path:
    """Give the folder in which the ranks of a job keep their last operations: the user's, if there is one."""
    return Path(os.environ.get("MINIDIST_RECORDER") or directory)


def exit_codes(n: int, directory: Path) -> dict[int, int]:
    """Return {rank: exit code} of the ranks whose program has ended by itself."""
    texts = {}
    for rank in range(n):
        with contextlib.suppress(FileNotFoundError):
            texts[rank] = (directory / f"exit-{rank}").read_text().strip()
    return {rank: int(text) for rank, text in texts.items() if text}


def processes() -> list[tuple[int, int, int]]:
    """Return (pid, parent's pid, process group) of every process, zombies excepted."""
    if not os.path.isdir("/proc/self"):
        table = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], capture_output=True, text=True
        ).stdout
        rows = [line.split() for line in table.splitlines()]
        return [(int(pid), int(parent), int(group)) for pid, parent, group, state in rows if state[0] != "Z"]
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                after_name = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue  # it has just ended
            if after_name[0] != b"Z":
                found.append((int(entry), int(after_name[1]), int(after_name[2])))
    return found


def family(root: int) -> set[int]:
    """Return the process groups of `root` and of everything that descends from it."""
    if os.name != "posix":
        return set()
    table = processes()
    pids, groups = {root}, {root}
    grew = True
    while grew:
        grew = False
        for pid, parent, group in table:
            if pid not in pids and (parent in pids or group in groups):
                pids.add(pid)
                groups.add(group)
                grew = True
    return groups - {os.getpgid(0)}


def end(process: subprocess.Popen[Any], known: set[int], patience: float = 2.0) -> None:
    """End `process` and everything it started: SIGTERM, and SIGKILL for who is still there `patience` seconds later.

    `known`: its family at an earlier time; if mpiexec itself is dead already, its children are found by that.
    """
    if os.name != "posix":
        process.kill()
        process.wait()
        return
    groups = family(process.pid) | known
    for step in (signal.SIGTERM, signal.SIGKILL):
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, step)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            ended = process.poll() is not None
            if ended and not any(group in groups for _, _, group in processes()):
                return
            time.sleep(0.01)


def how_it_died(code: int) -> str:
    """Say in words what an exit code means: 128 + signal is the shell's way to tell of a signal, -signal Python's."""
    number = -code if code < 0 else code - 128
    words = {"SIGKILL": "was killed", "SIGSEGV": "had a segmentation fault", "SIGABRT": "aborted"}
    words |= {"SIGTERM": "was ended", "SIGBUS": "had a bus error"}
    with contextlib.suppress(ValueError):
        name = signal.Signals(number).name
        if name in words:
            return f"{words[name]} ({name})"
    return f"ended with exit code {code}" + (", but without a farewell (os._exit?)" if code == 0 else "")
