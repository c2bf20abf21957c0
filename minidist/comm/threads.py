"""The threads transport: ranks are threads of one process.

It starts in milliseconds, needs no MPI, and every rank's variables can be looked at in a debugger:

    results = run_ranks(lambda comm: comm.all_reduce(comm.rank), 4)      # four arrays of value 6

As in MPI, a small send is buffered and complete at once, and a large one is complete when it was received. A deadlock
is found at once and exactly (`hub.py`). `mpi.py` is the other transport, with the same methods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidist.comm.communicator import Communicator
from minidist.comm.errors import CommError, RankStopped
from minidist.comm.events import last_words, tell_all_ended
from minidist.comm.guard.recorder import record
from minidist.comm.hub import Context, Hub, Message
from minidist.comm.progress import Progress, Request

_this_thread = threading.local()  # .comm: the communicator of the rank that this thread is


class Endpoint:
    """One rank's door to the threads transport, within one communicator (see `transport.py`)."""

    transport = "threads"
    looks = 0
    largest_tag = 2**26 - 1  # as on MPI
    payload_tags = range(2**26, 2**26 + 2**25)
    collective_tags = range(2**26 + 2**25, 2**27 - 2**24)
    guard_tags = range(2**27 - 2**24, 2**27)

    def __init__(self, hub: Hub, context: Context, members: Sequence[int], rank: int) -> None:
        self.hub, self.context, self.members, self.rank = hub, context, tuple(members), rank
        self.size = len(self.members)
        self.nodes = tuple(hub.nodes[member] for member in self.members)
        self.me = self.members[rank]

    def isend(self, array: np.ndarray, dest: int, tag: int, synchronous: bool = False) -> Message:
        """Start to send the bytes of a C-ordered array."""
        send = Message(self.me, self.members[dest], self.rank, tag, array, exact=False)
        send.sending = True
        self.hub.send((self.context, dest), send, synchronous)
        return send

    def irecv(self, buffer: np.ndarray, source: int, tag: int, exact: bool) -> Message:
        """Start to fill a C-ordered array."""
        peer = None if source == -1 else self.members[source]
        receive = Message(self.me, peer, source, tag, buffer, exact)
        self.hub.receive((self.context, self.rank), receive)
        return receive

    def iall_reduce(self, array: np.ndarray, op: str) -> Message:
        """Refuse: threads have nothing but send and receive."""
        raise CommError("the threads transport has no all-reduce of its own")

    def share(self, comm: Communicator, stretch: int) -> np.ndarray:
        """Let all ranks have one array: threads see the same memory anyway."""
        key = (self.context, comm.name, "shared memory")
        if self.rank == 0:
            self.hub.shared[key] = np.zeros((self.size, stretch), np.uint8)
        comm.barrier(purpose="control")
        memory = self.hub.shared[key]
        comm.barrier(purpose="control")  # now all have it: the next one may take the place
        return memory

    def meet(self, numbers: list[np.ndarray], place: int, number: int, tag: int) -> list[Message]:
        """Tell each other by empty messages: so a rank that waits is seen, and a deadlock found."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        sends = [self.isend(np.empty(0, np.uint8), rank, tag) for rank in others]
        return sends + [self.irecv(np.empty(0, np.uint8), rank, tag, exact=True) for rank in others]

    def idle(self, progress: Progress, request: Request, since: float) -> None:
        """Sleep until a message of this rank is complete; raise if that can never be."""
        comm = this_rank()
        here: Any = comm.endpoint if comm else self
        if here.hub is self.hub and here.me != self.me:
            raise CommError(
                f"rank {here.me} waits in {request.describe()}, which rank {self.me} has started: "
                "each rank waits for its own requests"
            )
        progress.look(request)
        self.hub.wait(self.me, request, progress.pending())

    def split(self, number: int, color: int | None, members: Sequence[int]) -> Endpoint | None:
        """Give the door to the communicator of `members`: a name that only they have is enough."""
        if color is None:
            return None
        context = (*self.context, number, color)
        return Endpoint(self.hub, context, [self.members[m] for m in members], members.index(self.rank))

    def alone(self) -> Endpoint:
        """Give a door to nobody but this rank itself."""
        return Endpoint(self.hub, (object(),), [self.me], 0)

    def free(self) -> None:
        """Give nothing back: a communicator of threads is a name."""

    def abort(self, code: int) -> None:
        """End every rank: this one by raising, the others because it did."""
        raise CommError(f"rank {self.me} called abort({code})")


def run_ranks(fn: Callable[..., Any], n: int, *args: Any, nodes: Sequence[int] | None = None) -> list[Any]:
    """Run fn(comm, *args) on n ranks that are threads of this process; give their results in rank order.

    nodes: of each rank a number for the machine that it is to believe it is on; None: all on one.
    Raises what a rank raised (the first one; its `.rank` says which), or DeadlockError if no rank can go on.
    """
    if n < 1:
        raise ValueError(f"n is {n}, expected at least 1 rank")
    if nodes is not None and len(nodes) != n:
        raise ValueError(f"nodes are {list(nodes)}, expected one number for each of {n} ranks")
    hub = Hub(n, nodes)
    results: list[Any] = [None] * n
    errors: list[tuple[int, BaseException]] = []
    comms: list[Communicator] = []

    def one_rank(rank: int) -> None:
        hub.threads[rank] = threading.get_ident()
        comm = _this_thread.comm = Communicator(Endpoint(hub, (), range(n), rank))
        comms.append(comm)
        record(comm)
        try:
            results[rank] = fn(comm, *args)
        except BaseException as error:
            errors.append((rank, error))
            hub.end(rank, error)
        else:
            hub.end(rank)

    threads = [threading.Thread(target=one_rank, args=(r,), name=f"rank {r}", daemon=True) for r in range(n)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as interrupt:  # Ctrl-C is raised here: the ranks that wait are to stop
        hub.end(0, interrupt)
        raise
    for rank, cause in errors:
        if isinstance(cause, RankStopped):
            continue  # only a consequence
        if isinstance(cause, SystemExit):
            raise CommError(f"rank {rank} called sys.exit({cause.code!r})") from cause
        cause.rank = rank  # type: ignore[attr-defined]
        raise cause
    comms.sort(key=lambda comm: comm.rank)
    tell_all_ended(comms[0].listeners, [last_words(comm.listeners) for comm in comms])
    return results


def this_rank() -> Communicator | None:
    """Give the communicator of the rank that this thread is; None if it is none."""
    return getattr(_this_thread, "comm", None)


def world_of_one() -> Communicator:
    """Make a communicator of one rank: this thread."""
    hub = Hub(1)
    hub.threads[0] = threading.get_ident()
    return Communicator(Endpoint(hub, (), [0], 0))
