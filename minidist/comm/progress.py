"""Operations in flight, and the one loop in which a rank waits for them.

Every operation is a *generator* that yields the transport's requests it waits for:

    def exchange(channel, mine, theirs, peer):
        yield channel.send(mine, peer), channel.receive(theirs, peer)     # go on when both are complete
        return theirs

MPI moves little while nobody calls it. So each rank keeps a list of its running generators, and whoever waits
for one of them moves all of them. A blocking call starts its generator and waits; a non-blocking one leaves it
on the list and gives back the `Request`; backward calls `advance()` once per node of the tape.

Read `transport.py` next: where the requests come from.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from minidist.comm.errors import CommError, MessageMismatch
from minidist.comm.events import Event

if TYPE_CHECKING:
    from minidist.comm.core import Core
    from minidist.comm.transport import TransportRequest


Steps = Generator["Iterable[TransportRequest]", None, Any]


class Request:
    """An operation in flight: `wait()` for its result, or `test()` whether it is complete."""

    def __init__(self, communicator: Core, operation: str, steps: Steps, facts: dict[str, Any]) -> None:
        self.communicator, self.operation, self.facts = communicator, operation, facts
        self.steps = steps
        self.pending: list[TransportRequest] = []
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.event: Event | None = None
        self.number: int | None = None  # under which it is written down

    def wait(self) -> Any:
        """Wait until the operation is complete; give its result. Waiting again gives the same."""
        if not self.done:
            self.communicator.progress.wait(self)
        if self.event is not None:
            for listener in self.communicator.listeners:
                listener.waited(self.event)
        if self.error is not None:
            raise self.error
        return self.result

    def test(self) -> bool:
        """Move everything in flight as far as it can go; say whether this operation is complete."""
        if not self.done:
            self.communicator.progress.advance()
            if not self.done and self.event is not None:
                try:
                    for listener in self.communicator.listeners:
                        listener.polled(self.event)
                except BaseException as error:  # a deadlock: it will never be complete
                    self.fail(error)
                    raise
        if self.done and self.event is not None:
            for listener in self.communicator.listeners:
                listener.tested(self.event)
        if self.error is not None:
            raise self.error
        return self.done

    def step(self) -> bool:
        """Go on as far as possible without waiting; say whether anything moved."""
        if self.done:
            return True
        moved = False
        try:
            while True:
                if self.pending:
                    before = len(self.pending)
                    self.pending = [request for request in self.pending if not request.test()]
                    moved = moved or len(self.pending) < before
                    if self.pending:
                        return moved
                self.pending = list(next(self.steps))
        except StopIteration as end:
            self.result = end.value
        except BaseException as error:  # kept for whoever waits for this operation, and raised there
            if isinstance(error, MessageMismatch) and not error.kind:
                error.args = (f"{self.describe()}: {error}",)
            self.fail(error)
            if not isinstance(error, Exception):  # Ctrl-C is not this operation's own, and cannot wait
                raise
        self.done = True
        if self.number is not None and self.error is None:
            self.communicator.recorder.ends(self.number)  # type: ignore[union-attr]
        if self.event is not None and self.error is None:
            for listener in self.communicator.listeners:
                listener.after(self.event)
        return True

    def fail(self, error: BaseException) -> None:
        """End without a result: whoever waits for this operation, now or later, gets the error."""
        self.error, self.done = error, True
        self.communicator.progress.abandoned += self.pending
        self.steps.close()
        if self.number is not None:
            self.communicator.recorder.ends(self.number, failed=True)  # type: ignore[union-attr]
        if self.event is not None:
            for listener in self.communicator.listeners:
                listener.failed(self.event)

    def describe(self) -> str:
        """Say what this operation is and whom it waits for."""
        facts, comm = self.facts, self.communicator
        words = {"peer": "dest" if self.operation == "send" else "source"}
        said = [
            f"{words.get(name, name)}={facts[name]}"
            for name in ("reduction", "root", "peer", "tag")
            if name in facts
        ]
        number = f" #{facts['sequence']}" if "sequence" in facts else ""
        how = f"({', '.join(said)})" if said else ""
        text = f"{self.operation}{number}{how} on {comm.name!r}"
        peers = sorted({request.peer for request in self.pending if request.peer is not None})
        if peers:
            text += f", waiting for rank{'s' * (len(peers) > 1)} {', '.join(map(str, peers))}"
            text += " of the world" if comm.parent is not None else ""
        return text


class Progress:
    """Everything that one rank has in flight, on all its communicators."""

    # Whether a small sum may be made at once, without a request. Who follows all requests says no.
    at_once = True

    def __init__(self, idle: Any) -> None:
        self.idle = idle  # the transport's way to wait: idle(progress, request, since)
        self.running: list[Request] = []
        self.abandoned: list[TransportRequest] = []  # of failed operations: their memory may still be in use
        self.waiting_thread: int | None = None
        self.seconds = 0.0  # that this rank has spent in `wait`

    def start(self, request: Request) -> Request:
        """Start an operation: it goes as far as it can at once, and then stays on the list."""
        request.step()
        if not request.done:
            self.running.append(request)
        return request

    def advance(self) -> bool:
        """Move every running operation as far as it can go without waiting; say whether any moved."""
        if not self.running:
            return False
        moved = False
        for request in list(self.running):  # a copy, since a listener that is told of an end may advance too
            moved = request.step() or moved
        if moved:
            self.running = [request for request in self.running if not request.done]
        return moved

    def wait(self, request: Request) -> None:
        """Wait until `request` is complete, moving everything else meanwhile."""
        outer, me = self.waiting_thread, threading.get_ident()
        if outer not in (None, me):
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            raise CommError(
                f"thread {names.get(me)!r} waits in {request.describe()} while thread {names.get(outer)!r} waits too: "
                "one rank's communicators belong to one thread"
            )
        self.waiting_thread = me
        began = since = time.perf_counter()
        try:
            while True:
                if self.advance():
                    since = time.perf_counter()
                if request.done:
                    return
                self.idle(self, request, since)
        except BaseException as error:
            if not request.done:  # a deadlock, Ctrl-C: it will never be complete
                request.fail(error)
            raise
        finally:
            self.waiting_thread = outer
            if outer is None:
                self.seconds += time.perf_counter() - began

    def look(self, request: Request) -> None:
        """Tell listeners that this rank is about to sleep."""
        if request.number is not None:
            request.communicator.recorder.waits(request.number)  # type: ignore[union-attr]
        if request.event is not None:
            for listener in request.communicator.listeners:
                listener.waiting(request.event)

    def pending(self) -> list[TransportRequest]:
        """Give every transport request that this rank waits for."""
        return [pending for request in self.running for pending in request.pending]
