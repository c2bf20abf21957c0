"""A rank that fails before MPI is up.

Once `world()` has been called, `comm/leaving.py` sees to it that nobody waits for a rank that has failed. Before, a
rank cannot talk to the others; and if it just ends, the others wait for it inside MPI's start for ever. But mpiexec
ends the job at once when a rank is killed by a signal: so a rank that fails this early kills itself.
"""

import os
import signal
import sys
import time
import traceback
from types import TracebackType

from minidist.errors import UserError


def watch() -> None:
    """If mpiexec has started this process as one of several ranks, make an uncaught exception end the job."""
    size = os.environ.get("PMI_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or "1"
    if size.isdigit() and int(size) > 1 and os.name == "posix":
        sys.excepthook = _uncaught


def _uncaught(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
    rank = int(os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)
    time.sleep(
        min(0.2 * rank, 1.0)
    )  # if all fail alike, as they mostly do, rank 0 says so and the rest end unheard
    if isinstance(error, UserError):
        text = str(error)
    elif isinstance(error, KeyboardInterrupt):
        text = "interrupted: ending the job"
    else:
        text = "".join(traceback.format_exception(kind, error, tb)).rstrip()
    sys.stdout.flush()
    print("\n".join(f"[rank {rank}] {line}" for line in text.splitlines()), file=sys.stderr, flush=True)
    time.sleep(0.1)  # for mpiexec to pass that on
    os.kill(os.getpid(), signal.SIGTERM)
