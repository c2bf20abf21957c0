"""What ranks that are threads of one process share: mailboxes, and who waits for what.

Whoever comes second, sender or receiver, copies the bytes. So nothing is ever on its way, and when every living rank
waits for a message, that is a deadlock: found exactly, at once, without any timeout. A rank that waits for one that
has left, or while another one has failed, is told so as well.

Read `threads.py` next, which uses it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.comm.errors import DeadlockError, MessageMismatch, RankStopped, wrong_size
from minidist.comm.events import source_line

if TYPE_CHECKING:
    from minidist.comm.progress import Request
    from minidist.comm.transport import TransportRequest

EAGER = 5 * 1024  # bytes, an envelope's: a send up to this size is buffered and complete at once, as in MPI
LONG = 0.25  # seconds after which a rank that waits is judged though others still run
Context = tuple[object, ...]  # what tells one communicator from all others
Box = tuple[Context, int]  # (communicator, receiver)


class Message:
    """A send or a receive. Both are complete once they have met."""

    def __init__(
        self, owner: int, peer: int | None, source: int, tag: int, data: np.ndarray, exact: bool
    ) -> None:
        self.owner, self.peer = owner, peer  # world ranks; peer None: any
        self.source, self.tag = source, tag  # the sender's rank in the communicator; -1: any
        self.data = data.reshape(-1).view(np.uint8)
        self.exact, self.sending = exact, False
        self.count = 0
        self.done = False
        self.error: Exception | None = None

    def test(self) -> bool:
        """Say whether it is complete."""
        if self.error is not None:
            raise self.error
        return self.done


class Hub:
    """What the ranks share. Everything is done under one lock."""

    def __init__(self, size: int, nodes: Sequence[int] | None = None) -> None:
        self.nodes = nodes or [0] * size  # of each rank: the machine that it believes it is on
        self.lock = threading.Lock()
        self.news = [threading.Condition(self.lock) for _ in range(size)]  # one per rank
        self.sent: dict[Box, list[Message]] = {}  # sent, not received yet
        self.posted: dict[Box, list[Message]] = {}  # receives that found nothing yet
        self.shared: dict[Any, np.ndarray] = {}  # memory on its way from one rank to the others
        self.threads: list[int] = [0] * size  # by rank
        self.living = set(range(size))
        self.waiting: dict[int, Request] = {}  # the ranks that sleep, and what each waits for
        self.verdicts: dict[int, Exception] = {}  # what a rank that is woken is to raise
        self.failed: tuple[int, BaseException] | None = None
        # Who watches the ranks finds out more exactly who can never go on, and says it in its own words.
        self.judge: Callable[[Hub, bool], Mapping[int, Exception]] | None = None

    def send(self, box: Box, send: Message, synchronous: bool = False) -> None:
        """Give a message to the first receive that fits, or leave it in the mailbox."""
        with self.lock:
            posted = self.posted.setdefault(box, [])
            for receive in posted:
                if receive.tag == send.tag and receive.source in (send.source, -1):
                    posted.remove(receive)
                    return self._meet(send, receive)
            if send.data.size <= EAGER and not synchronous:
                send.data = send.data.copy()
                send.done = True
            self.sent.setdefault(box, []).append(send)

    def receive(self, box: Box, receive: Message) -> None:
        """Take the first message that fits from the mailbox, or wait for it there."""
        with self.lock:
            sent = self.sent.setdefault(box, [])
            for send in sent:
                if receive.tag == send.tag and receive.source in (send.source, -1):
                    sent.remove(send)
                    return self._meet(send, receive)
            self.posted.setdefault(box, []).append(receive)

    def _meet(self, send: Message, receive: Message) -> None:
        size, room = send.data.size, receive.data.size
        if size > room or (receive.exact and size < room):
            receive.error = MessageMismatch(wrong_size(room, size, send.source))
        else:
            receive.data[:size] = send.data
        receive.count, receive.source = size, send.source
        for message in (send, receive):
            message.done = True
            self.waiting.pop(message.owner, None)
            self.news[message.owner].notify()

    def wait(self, rank: int, request: Request, pending: Sequence[TransportRequest]) -> None:
        """Let a rank sleep until one of its `pending` messages is complete; raise if that can never be."""
        with self.lock:
            if any(message.done for message in pending):
                return
            self.waiting[rank] = request
            self._look_around()
            while rank in self.waiting:
                if not self.news[rank].wait(None if self.judge is None else LONG) and rank in self.waiting:
                    self._look_around(long=True)
            self._obey(rank, request)

    def poll(self, rank: int, request: Request) -> None:
        """Count a rank as waiting that asks without an end whether it is complete; raise if that can never be."""
        with self.lock:
            waits = self.waiting.get(rank) is request
            if not waits and rank not in self.verdicts and not any(m.done for m in request.pending):
                self.waiting[rank] = request
                self._look_around()
            self._obey(rank, request)

    def _obey(self, rank: int, request: Request) -> None:
        verdict = self.verdicts.pop(rank, None)
        if verdict is not None:
            for boxes in (self.posted, self.sent):  # what nobody waits for any more must meet nobody
                for box in boxes.values():
                    box[:] = [message for message in box if message not in request.pending]
            raise verdict

    def end(self, rank: int, error: BaseException | None = None) -> None:
        """Say that a rank has ended, and with which error."""
        with self.lock:
            self.living.discard(rank)
            if error is not None and self.failed is None:
                self.failed = (rank, error)
            self._look_around()

    def _look_around(self, long: bool = False) -> None:
        """Find ranks that can never go on; called whenever a rank begins to wait, has waited `long`, or ends."""
        if self.failed is not None:
            failed, error = self.failed
            why = f"stopped because rank {failed} raised {type(error).__name__}: {error}"
            self._wake({rank: RankStopped(f"rank {rank} {why}") for rank in self.waiting})
        elif self.judge is not None:
            self._wake(self.judge(self, long))
        elif set(self.waiting) == self.living:
            self._wake({rank: DeadlockError(f"no rank can go on:{self._story()}") for rank in self.waiting})
        else:
            for rank, request in list(self.waiting.items()):
                gone = [m.peer for m in request.pending if m.peer is not None and m.peer not in self.living]
                if gone:
                    text = f"rank {rank} waits for rank {gone[0]}, which has left:{self._story()}"
                    self._wake({rank: DeadlockError(text)})

    def _wake(self, verdicts: Mapping[int, Exception]) -> None:
        for rank, error in verdicts.items():
            self.verdicts[rank] = error
            del self.waiting[rank]
            self.news[rank].notify()

    def _story(self) -> str:
        """Say for each rank what it is doing, and at which line of the user's program."""
        frames, lines = sys._current_frames(), []
        for rank, thread in enumerate(self.threads):
            if rank not in self.living:
                lines.append(f"rank {rank} has left: its function has returned")
                continue
            request, frame = self.waiting.get(rank), frames.get(thread)
            doing = f"waits in {request.describe()}" if request else "is running"
            lines.append(f"rank {rank} {doing}, at {source_line(frame) if frame else 'its start'}")
        return "".join(f"\n  {line}" for line in lines)
