"""Who of the ranks that mpiexec started here is gone before MPI could tell.

    mpiexec - hydra_pmi_proxy -+- rank 0    in world(), its mark is up
                               +- rank 1    still imports NumPy
                               +- (gone)    left without a word: os._exit, or an exit before `import minidist`

MPI's start waits for all ranks, holds Python still meanwhile, and never ends if one does not come: to MPICH an exit
before the start looks orderly. So ranks first wait for each other here, politely, and look into Linux's /proc for the
children of their common parent. The mark of a rank that has come is an open file without a name: nothing stays.

Open MPI's mpiexec ends such jobs itself. Read next: `leaving.py`, which takes over when MPI is up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "minidist-has-come"
NAP = 3e-3  # seconds between two looks
SURE = 0.2  # seconds: mpiexec may still be starting the others
PROXY = "hydra_pmi_proxy"


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Wait until all ranks of this machine are about to start MPI; end the job if one of them is gone.

    Within the context MPI is started: when it is up, every rank has seen every mark.
    """
    proxy, count = _proxy(), os.environ.get("MPI_LOCALNRANKS", "")
    if proxy is None or not count.isdigit() or int(count) < 2:
        yield
        return
    mark = os.memfd_create(MARK)
    try:
        _wait(proxy, int(count))
        yield
    finally:
        os.close(mark)


def _wait(proxy: int, count: int) -> None:
    came: set[int] = set()
    complete = time.monotonic()
    while True:
        children = _children(proxy)
        if len(children) >= count:
            complete = time.monotonic()
        elif time.monotonic() > complete + SURE:
            _say_who_is_gone(children)
        came |= {child for child in children - came if _has_come(child)}
        if len(came) == count:
            return
        time.sleep(NAP)


def _proxy() -> int | None:
    """Find MPICH's helper above this process, the parent of all ranks of this machine; None: there is none."""
    pid = os.getppid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1:
            name, fields = _stat(pid)
            if name == PROXY[:15]:  # Linux keeps 15 characters
                Path(f"/proc/{pid}/task/{pid}/children").read_bytes()  # not every kernel lists them
                return pid
            pid = int(fields[1])
    return None


def _stat(pid: int) -> tuple[str, list[str]]:
    """Read a process's name, and what follows: its state, its parent ..."""
    before, _, after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return before.partition("(")[2], after.split()


def _children(pid: int) -> set[int]:
    """List the children of a process that live."""
    living = set()
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        with contextlib.suppress(OSError):  # it has just ended
            if _stat(child)[1][0] not in "ZX":
                living.add(child)
    return living


def _has_come(pid: int) -> bool:
    """Look for the mark of a rank; the rank may be a descendant of `pid` (`mpiexec -n 4 sh -c ...`)."""
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if MARK in os.readlink(f"/proc/{pid}/fd/{fd}"):
                    return True
        if "libmpi" in Path(f"/proc/{pid}/maps").read_text():  # the program starts MPI without us
            return True
        return any(_has_come(child) for child in _children(pid))
    return False


def _rank(pid: int) -> int:
    with contextlib.suppress(OSError, StopIteration):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return int(next(entry[9:] for entry in environment if entry.startswith(b"PMI_RANK=")))
    return -1


def _say_who_is_gone(living: set[int]) -> None:
    """Say it on the lowest rank that lives here, and end the job."""
    ranks, me = sorted(map(_rank, living)), int(os.environ.get("PMI_RANK", "0"))
    first = me - int(os.environ.get("MPI_LOCALRANKID", "0"))  # of this machine
    gone = [rank for rank in range(first, first + int(os.environ["MPI_LOCALNRANKS"])) if rank not in ranks]
    if me != ranks[0]:
        time.sleep(1.0)  # that rank says it and ends the job; if it cannot any more, we do
    names = f"rank{'s' * (len(gone) > 1)} {', '.join(map(str, gone))}"
    print(
        f"[rank {me}] {names} ended before MPI was up, without a word (os._exit, or an exit before "
        "`import minidist`): ending the job",
        file=sys.stderr,
        flush=True,
    )
    time.sleep(0.1)  # for mpiexec to pass that on
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)  # a rank killed by a signal ends the job
