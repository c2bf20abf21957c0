"""What MPI leaves behind in shared memory and temporary folders when a job ends in disorder.

    /dev/shm/mpich_shm_*          MPICH: some MB for each job that is killed or aborted
    /dev/shm/ucx_shm_posix_*      MPICH's library UCX: the same, if the job is killed while it starts
    /dev/shm/sm_segment.*         Open MPI: one for each rank, if its mpiexec is killed
    /tmp/hydra_hwloc_xmlfile_*    MPICH's mpiexec, at an Abort: what the machine's processors are

A file's name is only needed until all ranks have opened it. So each rank takes the names away when MPI is up, and what
is killed before that is found by the next job, or by the launcher that has started it. A file of a job that lives is
in some process's memory, or open, and another job never touches it. Called by `comm/leaving.py` on the ranks, and by
`launch/` around them.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pathlib
import time
from collections.abc import Callable

PROCESSORS = "/tmp/hydra_hwloc_xmlfile_"
REMAINS = ("/dev/shm/mpich_shm_*", "/dev/shm/ucx_shm_posix_*", "/dev/shm/sm_segment.*", f"{PROCESSORS}*")
OLD = 300.0  # seconds after which no job is still starting
STARTING = 10.0  # seconds in which a file's first owner may have made it and not mapped it yet


def unlink_own() -> None:
    """Take away the names of MPICH's files of this job, which all ranks have read or mapped by now.

    MPICH itself does so only in an orderly shutdown: every job that ends otherwise leaves some MB behind.
    """
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for path in {line.split()[-1] for line in maps if "/dev/shm/mpich_shm_" in line}:
            pathlib.Path(path).unlink(missing_ok=True)
    process = os.getppid()
    with contextlib.suppress(OSError):
        for _ in range(3):  # mpiexec's helper, which has the file open, may have a shell between it and us
            for path in opened_by(pathlib.Path(f"/proc/{process}")):
                if path.startswith(PROCESSORS):
                    pathlib.Path(path).unlink(missing_ok=True)
            process = int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def remove_since(began: float) -> None:
    """Remove what a job has left that was started at `began` (time.time()) and has ended.

    Only this user's, only what was made since then, and only if no process uses it.
    """
    _remove(lambda made: made >= began - 1)


def sweep() -> None:
    """Remove what this user's earlier jobs left: those that were killed while they started, and mpiexec at an Abort.

    The ranks of a job that lives have opened such files in MPI's start: at that age nobody needs the name. Sooner it is
    removed if no process has the file in its memory any more.
    """
    now = time.time()
    _remove(lambda made: made < now - STARTING)
    for path in _of_this_user(lambda made: made < now - OLD):
        with contextlib.suppress(OSError):  # another rank was faster
            os.unlink(path)


def _remove(when: Callable[[float], bool]) -> None:
    """Remove the files of which `when(made)` is true and that nobody uses."""
    candidates = _of_this_user(when)
    used = in_use() if candidates else set()
    for path in candidates:
        if path not in used:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _of_this_user(when: Callable[[float], bool]) -> list[str]:
    """List this user's files by when they were made."""
    found = []
    for path in (path for pattern in REMAINS for path in glob.glob(pattern)):
        with contextlib.suppress(OSError):  # it has just been removed
            about = os.stat(path)
            if about.st_uid == os.getuid() and when(about.st_ctime):
                found.append(path)
    return found


def in_use() -> set[str]:
    """Give the paths of all files that some process has in its memory or open."""
    found: set[str] = set()
    for process in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            found.update(line.split()[-1] for line in pathlib.Path(process, "maps").read_text().splitlines())
            found.update(opened_by(pathlib.Path(process)))
    return found


def opened_by(process: pathlib.Path) -> list[str]:
    """Give the paths of the files that a process has open; process: its folder below /proc."""
    return [os.readlink(handle) for handle in (process / "fd").iterdir()]
