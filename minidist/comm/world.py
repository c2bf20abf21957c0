"""Which world this process is in: MPI's, if an mpiexec or srun started it, else a world of one.

The launcher's environment says how many ranks it started; MPI says how many it sees. If they differ, the two
belong to different MPIs, and every process would train alone as rank 0 of 1: refused here, with the remedy.

Read `mpi.py` next, or `threads.py`, which makes the world of one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from minidist.comm import guard, siblings, threads
from minidist.comm.communicator import Communicator
from minidist.comm.guard.recorder import record
from minidist.errors import UserError

PATIENCE = 60.0  # seconds for all ranks to start MPI


@dataclass(frozen=True)
class LauncherFacts:
    """Say who started this process as one of several ranks."""

    launcher: str  # "mpiexec" or "srun"
    rank: int | None
    size: int | None  # None where the launcher does not say


def launcher_facts(environ: Mapping[str, str]) -> LauncherFacts | None:
    """Find out from the environment which launcher started this process; None: started by hand."""

    def number(*names: str) -> int | None:
        return next((int(environ[name]) for name in names if environ.get(name, "").isdigit()), None)

    rank = number("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
    size = number("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
    slurm = number("SLURM_STEP_NUM_TASKS")  # of this step: 1 in a batch script, which is not a rank
    if slurm is not None and (slurm > 1 or size is not None):
        return LauncherFacts("srun", rank, size or slurm)
    if size is not None or "PMIX_RANK" in environ:
        return LauncherFacts("mpiexec", rank, size)
    if "MPI_LOCALNRANKS" in environ:
        return LauncherFacts("mpiexec", number("MPI_LOCALRANKID"), number("MPI_LOCALNRANKS"))
    return None


def world_problem(facts: LauncherFacts, mpi_size: int, library: str, beside: str | None) -> str | None:
    """Say what is wrong if the launcher started several ranks and MPI sees only one; None: nothing.

    library: what MPI says of itself. beside: the mpiexec next to the interpreter, if there is one.
    """
    if mpi_size > 1 or facts.size in (None, 1):
        return None
    if facts.launcher == "srun":
        dialect = "pmix" if library.startswith("Open MPI") else "pmi2"  # how srun introduces ranks
        return (
            f"srun started {facts.size} processes, but each is a world of one: they did not find each other. "
            f"Start them with: srun --mpi={dialect} -n {facts.size} python ... "
            "(srun --mpi=list shows what this cluster offers). python -m minidist.doctor says more."
        )
    right = beside or f"the mpiexec of {library}"
    return (
        f"mpiexec started {facts.size} processes, but each is rank 0 of 1: this mpiexec belongs to another MPI than "
        f"mpi4py's ({library}). Start them with: {right} -n {facts.size} python ... "
        "python -m minidist.doctor says more."
    )


def mpiexec_beside_python() -> str | None:
    """Find the mpiexec that was installed with this interpreter's packages."""
    path = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return path if os.access(path, os.X_OK) else None


def world() -> Communicator:
    """Give the communicator of all ranks: MPI's under mpiexec or srun, this thread's under threads, else of one.

    Calling it again gives the same one. Raises UserError if the ranks that were started do not find each other.
    """
    comm = threads.this_rank() or _world_of_this_process()
    if os.environ.get("MINIDIST_GUARD", "0") not in ("", "0"):
        guard.watch(comm)
    return comm


@functools.cache
def _world_of_this_process() -> Communicator:
    facts = launcher_facts(os.environ)
    if facts is None:
        return threads.world_of_one()
    try:
        with nobody_leaves_unnoticed(facts):
            return _world_of_mpi(facts)
    except (ImportError, RuntimeError) as error:  # not installed; or installed, and no MPI library found
        raise _refusal(
            facts,
            f"{facts.launcher} started this process, but MPI cannot be used ({str(error).splitlines()[0]}). "
            "Install it with: python -m pip install mpich mpi4py",
        ) from None


def _world_of_mpi(facts: LauncherFacts) -> Communicator:
    """Start MPI, see that the ranks find each other, and from then on watch how they leave."""
    MPI = load_mpi()
    library = " ".join(MPI.Get_library_version().split("\n")[0].split(",")[0].strip("\0").split())
    foreign = mpich_under_open_mpi(os.environ, library)
    everyone = None if foreign else start_mpi(MPI)
    problem = world_problem(facts, everyone.Get_size() if everyone else 1, library, mpiexec_beside_python())
    if problem or not everyone:
        raise _refusal(facts, problem or "")
    from minidist.comm import leaving
    from minidist.comm.mpi import Endpoint
    from minidist.comm.two_level import find_nodes

    if everyone.Get_size() > 1:
        leaving.install(everyone)
    nodes = find_nodes(MPI, everyone)
    comm = Communicator(Endpoint(MPI, everyone.Dup(), range(everyone.Get_size()), nodes))
    leaving.tell_listeners(comm)
    record(comm)
    return comm


@contextlib.contextmanager
def nobody_leaves_unnoticed(facts: LauncherFacts) -> Iterator[None]:
    """Let a rank that exits while it starts MPI die by a signal: others wait for it there, and mpiexec tells them.

    Nothing else would: an exit looks orderly to MPI, and `leaving.py` is not at work yet.
    """
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        if facts.size != 1 and os.name == "posix" and not isinstance(error, _Refused):
            # After Ctrl-C, which all ranks get, rank 0 says it for all.
            time.sleep(min(0.2 * (facts.rank or 0), 1.0))
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            print(f"[rank {facts.rank}] left while MPI was starting: {error!r}", file=sys.stderr, flush=True)
            time.sleep(0.1)  # for mpiexec to pass that on
            os.kill(os.getpid(), signal.SIGTERM)
        raise


class _Refused(SystemExit):
    """Leave without a word, because the first rank says it."""


def load_mpi() -> Any:
    """Import mpi4py without starting MPI, unless the user's program has started it already."""
    import mpi4py

    # Open MPI 5.0 writes a message that is too large past the end of the receiver's array if it copies from process to
    # process; without that it raises an error alone.
    os.environ.setdefault("OMPI_MCA_smsc", "^cma")
    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    from mpi4py import MPI

    return MPI


def mpich_under_open_mpi(environ: Mapping[str, str], library: str) -> bool:
    """Tell a start that would not come back: MPICH ends a process that Open MPI's mpiexec has started.

    There are MPICHs that can be introduced by Open MPI; whoever has one sets MPIR_CVAR_PMI_VERSION.
    """
    own = "PMI_RANK" in environ or "MPIR_CVAR_PMI_VERSION" in environ
    return library.startswith("MPICH") and environ.get("OMPI_COMM_WORLD_SIZE", "1") != "1" and not own


def start_mpi(MPI: Any) -> Any:
    """Start MPI, which waits for all other ranks to come here, and return the communicator of all.

    MPI's start cannot be interrupted from Python, so ranks of one machine wait for each other before it. If a rank of
    another machine never comes, this rank ends after PATIENCE seconds, and its stack says that it stood here.
    """
    if not MPI.Is_initialized():
        try:
            with warnings.catch_warnings():  # mpi4py warns of a foreign mpiexec; we refuse it, in other words
                warnings.filterwarnings("ignore", "suspicious MPI execution environment")
                with siblings.together():
                    faulthandler.dump_traceback_later(PATIENCE, exit=True)
                    MPI.Init_thread()
        finally:
            faulthandler.cancel_dump_traceback_later()
    return MPI.COMM_WORLD


def _refusal(facts: LauncherFacts, sentence: str) -> BaseException:
    """Let only the launcher's first rank say it: the others leave without a word."""
    return UserError(sentence) if facts.rank in (0, None) else _Refused(2)
