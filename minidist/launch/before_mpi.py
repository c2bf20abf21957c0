"""A rank that leaves before MPI is up.

Once `world()` has been called, `comm/leaving.py` sees to it that nobody waits for a rank that has left. Before, a
rank cannot talk to the others; and if it just ends, MPICH's others wait for it inside MPI's start for ever.

    an uncaught exception    the rank kills itself: mpiexec ends the job when a rank is killed by a signal
    any other exit           the rank meets the others in MPI's start after all, and says farewell there
"""

import atexit
import contextlib
import faulthandler
import os
import signal
import sys
import time
import traceback
from types import TracebackType

from minidist import leftovers
from minidist.errors import UserError


def watch() -> None:
    """If mpiexec has started this process as one of several ranks, do not let it leave unnoticed."""
    size = os.environ.get("PMI_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or "1"
    if size.isdigit() and int(size) > 1 and os.name == "posix":
        sys.excepthook = _uncaught
        faulthandler.enable()
        if _mpich_started_us():
            atexit.register(_join, os.getpid())


def _mpich_started_us() -> bool:
    """Say whether MPICH's line to mpiexec is open here: a child of a rank has the environment, but not the line."""
    with contextlib.suppress(KeyError, ValueError, OSError):
        os.fstat(int(os.environ["PMI_FD"]))
        return True
    return False


def _join(rank_process: int) -> None:
    """Start MPI, where the others may be waiting for this rank, and say farewell to them."""
    if "mpi4py.MPI" in sys.modules or os.getpid() != rank_process:
        return
    # Suppressed: there is no MPI, or one that is not mpiexec's, so nobody waits there.
    with contextlib.suppress(Exception, SystemExit):
        from minidist.comm import leaving, world

        world()
        leaving.farewell()


def _uncaught(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
    rank = int(os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)
    # If all fail alike, as they mostly do, rank 0 says so and the others end unheard.
    time.sleep(min(0.2 * rank, 1.0))
    if isinstance(error, UserError):
        text = str(error)
    elif isinstance(error, KeyboardInterrupt):
        text = "interrupted: ending the job"
    else:
        text = "".join(traceback.format_exception(kind, error, tb)).rstrip()
    sys.stdout.flush()
    print("\n".join(f"[rank {rank}] {line}" for line in text.splitlines()), file=sys.stderr, flush=True)
    time.sleep(0.1)  # for mpiexec to pass that on
    leftovers.unlink_own()
    os.kill(os.getpid(), signal.SIGTERM)
