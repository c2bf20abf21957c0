"""What MPI leaves behind in shared memory and temporary folders when a job ends in disorder.

    /dev/shm/mpich_shm_*          MPICH: some MB for each job that is killed or aborted
    /dev/shm/ucx_shm_posix_*      MPICH's library UCX: the same, if the job is killed while it starts
    /dev/shm/sm_segment.*         Open MPI: one for each rank, if its mpiexec is killed
    /tmp/hydra_hwloc_xmlfile_*    MPICH's mpiexec, at an Abort

A file's name is only needed until all ranks have opened it. So each rank takes the names away when MPI is up, and what
is killed before that is found by the next job. Read next: `leaving.py`, which calls this.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pathlib
import time

SHARED = ("/dev/shm/mpich_shm_*", "/dev/shm/ucx_shm_posix_*", "/dev/shm/sm_segment.*")
REMAINS = (*SHARED, "/tmp/hydra_hwloc_xmlfile_*")
OLD = 300.0  # seconds after which no job is still starting
STARTING = 10.0  # seconds in which a file's first owner may have made it and not mapped it yet


def unlink_shared_memory() -> None:
    """Take away the name of MPICH's shared-memory file, which all ranks have mapped by now.

    MPICH itself does so only in an orderly shutdown: every job that ends otherwise leaves some MB behind.
    """
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for path in {line.split()[-1] for line in maps if "/dev/shm/mpich_shm_" in line}:
            pathlib.Path(path).unlink(missing_ok=True)


def sweep() -> None:
    """Remove what this user's earlier jobs left: those that were killed while they started, and mpiexec at an Abort.

    The ranks of a job that lives have opened such files in MPI's start: at that age nobody needs the name. Sooner it is
    removed if no process has the file in its memory any more.
    """
    now = time.time()
    for path in (path for pattern in REMAINS for path in glob.glob(pattern)):
        with contextlib.suppress(OSError):  # another rank was faster
            found = os.stat(path)
            age = now - found.st_ctime
            if found.st_uid == os.getuid() and (
                age > OLD or (age > STARTING and path.startswith("/dev/shm/") and _unused(path))
            ):
                os.unlink(path)


def _unused(path: str) -> bool:
    """Say whether no process has mapped this file."""
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with contextlib.suppress(OSError), open(maps) as file:  # it has just ended, or is another user's
            if path in file.read():
                return False
    return True
