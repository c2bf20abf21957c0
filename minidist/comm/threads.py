"""The threads transport: ranks are threads of one process.

It starts in milliseconds, needs no MPI, and every rank's variables can be looked at in a debugger. Each rank has a
mailbox; whoever comes second, sender or receiver, copies the bytes. Nothing is ever on its way, so when every living
rank waits for a message that has not been sent, that is a deadlock: exactly and at once, without any timeout.

As in MPI, a small send is buffered and complete at once, and a large one is complete when it was received.
`mpi.py` is the other transport, with the same methods.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.comm import message
from minidist.comm.errors import CommError, DeadlockError, MessageMismatch, RankStopped, wrong_size
from minidist.comm.events import source_line

if TYPE_CHECKING:
    from minidist.comm.communicator import Communicator
    from minidist.comm.progress import Progress, Request

_this_thread = threading.local()  # .comm: the communicator of the rank that this thread is


class _Message:
    """A send or a receive; both are complete once they have met."""

    def __init__(
        self, owner: int, peer: int | None, box: tuple, source: int, tag: int, data: np.ndarray
    ) -> None:
        self.owner, self.peer = owner, peer  # world ranks
        self.box, self.source, self.tag = box, source, tag
        self.data = data.reshape(-1).view(np.uint8)
        self.exact = False
        self.count = 0
        self.done = False
        self.error: Exception | None = None

    def test(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.done


class Hub:
    """What the ranks of one process share: mailboxes, and who is waiting."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.news = [threading.Condition(self.lock) for _ in range(size)]
        self.sent: dict[tuple, list[_Message]] = {}  # by (communicator, receiver): sent, not yet received
        self.posted: dict[tuple, list[_Message]] = {}  # receives that found nothing yet
        self.threads: list[int | None] = [None] * size
        self.waiting: dict[int, Request] = {}  # blocked ranks, and what each waits for
        self.living = set(range(size))
        self.verdicts: dict[int, Exception] = {}  # blocked ranks that are to raise
        self.failed: tuple[int, BaseException] | None = None

    def meet(self, send: _Message, receive: _Message) -> None:
        """Copy a message to its receiver; both are complete."""
        size = send.data.size
        if size > receive.data.size or (receive.exact and size != receive.data.size):
            receive.error = MessageMismatch(wrong_size(receive.data.size, size, send.source, send.tag))
        else:
            receive.data[:size] = send.data
        receive.count, receive.source = size, send.source
        for message_ in (send, receive):
            message_.done = True
            self.waiting.pop(message_.owner, None)
            self.news[message_.owner].notify()

    def look_around(self) -> None:
        """Find the ranks that can never go on; called whenever a rank begins to wait, leaves or fails."""
        if self.failed is not None:
            rank, error = self.failed
            why = f"stopped because rank {rank} raised {type(error).__name__}: {error}"
            self.condemn({waiting: RankStopped(f"rank {waiting} {why}") for waiting in self.waiting})
        elif self.waiting and set(self.waiting) == self.living:
            text = "no rank can go on:" + self.story()
            self.condemn({waiting: DeadlockError(text) for waiting in self.waiting})
        else:
            gone = {
                waiting: DeadlockError(f"rank {waiting} waits for a rank that has left:" + self.story())
                for waiting, request in self.waiting.items()
                if any(
                    pending.peer is not None and pending.peer not in self.living
                    for pending in request.pending
                )
            }
            self.condemn(gone)

    def condemn(self, verdicts: dict[int, Exception]) -> None:
        """Wake ranks to raise an error."""
        for rank, error in verdicts.items():
            self.verdicts[rank] = error
            del self.waiting[rank]
            self.news[rank].notify()

    def story(self) -> str:
        """Say for each rank what it is doing, and at which line of the user's program."""
        frames = sys._current_frames()
        lines = []
        for rank in range(self.size):
            if rank not in self.living:
                lines.append(f"rank {rank} has left (its function returned)")
                continue
            request = self.waiting.get(rank)
            frame = frames.get(self.threads[rank] or 0)
            where = source_line(frame) if frame is not None else "?"
            lines.append(f"rank {rank} is {'in ' + request.describe() if request else 'running'}, at {where}")
        return "".join(f"\n  {line}" for line in lines)

    def end(self, rank: int, error: BaseException | None = None) -> None:
        """Say that a rank has ended, and with which error."""
        with self.lock:
            self.living.discard(rank)
            if error is not None and self.failed is None:
                self.failed = (rank, error)
            self.look_around()


class Endpoint:
    """One rank's door to the threads transport, within one communicator."""

    transport = "threads"
    largest_tag = 2**26 - 1  # of the user's own tags, as on MPI
    payload_tags = range(2**26, 2**27)
    collective_tags = range(2**27, 2**28)

    def __init__(self, hub: Hub, name: tuple, members: Sequence[int], rank: int) -> None:
        self.hub, self.name, self.members, self.rank = hub, name, tuple(members), rank
        self.size = len(self.members)

    def isend(self, array: np.ndarray, dest: int, tag: int) -> _Message:
        """Start to send the bytes of a C-ordered array."""
        box = (self.name, dest)
        send = _Message(self.members[self.rank], self.members[dest], box, self.rank, tag, array)
        with self.hub.lock:
            posted = self.hub.posted.get(box, [])
            for receive in posted:
                if receive.tag == tag and receive.source in (self.rank, -1):
                    posted.remove(receive)
                    self.hub.meet(send, receive)
                    return send
            if send.data.size <= message.LONGEST:
                send.data = send.data.copy()
                send.done = True
            self.hub.sent.setdefault(box, []).append(send)
        return send

    def irecv(self, buffer: np.ndarray, source: int, tag: int, exact: bool) -> _Message:
        """Start to fill a C-ordered array; `exact`: with exactly its number of bytes. Source -1: any."""
        box = (self.name, self.rank)
        peer = None if source == -1 else self.members[source]
        receive = _Message(self.members[self.rank], peer, box, source, tag, buffer)
        receive.exact = exact
        with self.hub.lock:
            sent = self.hub.sent.get(box, [])
            for send in sent:
                if send.tag == tag and source in (send.source, -1):
                    sent.remove(send)
                    self.hub.meet(send, receive)
                    return receive
            self.hub.posted.setdefault(box, []).append(receive)
        return receive

    def idle(self, progress: Progress, request: Request, since: float) -> None:
        """Sleep until a message of this rank is complete; raise if that can never be."""
        progress.look(request)
        me = self.members[self.rank]
        with self.hub.lock:
            if any(pending.done or pending.error for pending in progress.pending()):  # type: ignore[attr-defined]
                return
            self.hub.waiting[me] = request
            self.hub.look_around()
            while me in self.hub.waiting:
                self.hub.news[me].wait()
            verdict = self.hub.verdicts.pop(me, None)
            if verdict is not None:
                for pending in request.pending:  # what will never be read must not swallow a later message
                    for box in (self.hub.posted, self.hub.sent):
                        if pending in box.get(pending.box, []):  # type: ignore[attr-defined]
                            box[pending.box].remove(pending)  # type: ignore[attr-defined, arg-type]
                raise verdict

    def split(self, number: int, color: int | None, members: Sequence[int]) -> Endpoint | None:
        """Give this rank's door to the communicator of `members` (ranks of this one, in their new order)."""
        if color is None:
            return None
        name = (*self.name, number, color)
        return Endpoint(
            self.hub, name, [self.members[member] for member in members], members.index(self.rank)
        )

    def alone(self) -> Endpoint:
        """Give a door to nobody but this rank itself."""
        return Endpoint(self.hub, (*self.name, "alone", self.rank, object()), [self.members[self.rank]], 0)

    def abort(self, code: int) -> None:
        """End every rank."""
        raise CommError(f"rank {self.members[self.rank]} called abort({code})")


def run_ranks(fn: Callable[..., Any], n: int, *args: Any) -> list[Any]:
    """Run fn(comm, *args) on n ranks that are threads of this process; give their results in rank order.

    Raises what a rank raised (with `.rank`), or DeadlockError as soon as no rank can go on.
    """
    from minidist.comm.communicator import Communicator

    if n < 1:
        raise ValueError(f"n is {n}, expected at least 1 rank")
    hub = Hub(n)
    results: list[Any] = [None] * n
    errors: list[tuple[int, BaseException]] = []

    def one_rank(rank: int) -> None:
        hub.threads[rank] = threading.get_ident()
        comm = _this_thread.comm = Communicator(Endpoint(hub, (), range(n), rank))
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
    except BaseException as error:  # Ctrl-C: whoever waits for a message stops
        with hub.lock:
            hub.failed = hub.failed or (0, error)
            hub.look_around()
        raise
    causes = [pair for pair in errors if not isinstance(pair[1], RankStopped)]
    if causes:
        rank, error = causes[0]
        if isinstance(error, SystemExit):
            raise CommError(f"rank {rank} called sys.exit({error.code!r})") from error
        error.rank = rank  # type: ignore[attr-defined]
        raise error
    return results


def this_rank() -> Communicator | None:
    """Give the communicator of the rank that this thread is, if it is one."""
    return getattr(_this_thread, "comm", None)


def alone() -> Communicator:
    """Make a world of one."""
    from minidist.comm.communicator import Communicator

    hub = Hub(1)
    hub.threads[0] = threading.get_ident()
    return Communicator(Endpoint(hub, (), [0], 0))
