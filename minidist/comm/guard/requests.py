"""The life of a request: from the line that posts it to the one `wait()` that ends it.

    request = comm.isend(x, 1)       x may be read, and not changed
    request = comm.irecv(x, 0)       x may be neither read nor changed; it holds poison (`poison.py`)
    request.wait()                   once: now x is the program's again

Between the two the memory belongs to the communicator. So its digest is taken when the request is posted, and compared
when a message is put into it and when the program asks for the result. What a receive has brought is kept aside until
then: so to read too early shows each time, not only when the message happens to be late. A receive that fails leaves
its buffer as it was. Only what the user's program does is watched, not minidist's own requests.

Cost for a user's request of n bytes: isend reads n bytes twice, irecv copies n bytes three times.

Read `unfinished.py` next: what is still open when the program ends.
"""

from __future__ import annotations

import sys
import weakref
import zlib
from collections.abc import Iterator
from types import FrameType

import numpy as np

from minidist.comm.errors import RequestFault
from minidist.comm.events import Event, Listener, is_engines, is_ours, source_line
from minidist.comm.guard import is_on, poison, report, temporary
from minidist.comm.message import Header

FRAMES = 4  # of the program, whose variables are looked at


class Flight:
    """One request of the program: its memory, and how far it has come."""

    def __init__(self, event: Event, reads: np.ndarray | None, writes: np.ndarray | None) -> None:
        self.call, self.line, self.peer = event.call, event.line, event.peer
        self.reads, self.writes = reads, writes
        self.digest: int | None = None  # of what the memory must hold until the program has asked
        self.mark = 0  # of the poison in a receive buffer
        self.saved: np.ndarray | None = None  # what was in it before
        self.arrived: np.ndarray | None = None  # what the receive has brought
        self.changed = False
        self.waited = ""  # where
        self.over = False  # the program knows that it is complete
        self.alive: weakref.ref[Event] | None = None

    def is_intact(self) -> bool:
        """Say whether the memory still holds what it must."""
        memory = self.writes if self.mark else self.reads
        return memory is None or self.digest is None or self.digest == digest(memory)

    def poison(self) -> None:
        """Fill the receive buffer with what nobody takes for data."""
        assert self.writes is not None
        poison.fill(self.writes, self.mark)
        self.digest = digest(self.writes)

    def release(self) -> None:
        """Give the memory back to the program."""
        if self.arrived is not None and self.writes is not None:
            self.writes[...] = self.arrived
        self.over = True
        self.reads = self.writes = self.saved = self.arrived = None


class Requests(Listener):
    """Watch the requests of one rank, on all its communicators."""

    def __init__(self) -> None:
        self.flights: dict[int, Flight] = {}  # by the identity of their event
        self.dropped: list[Flight] = []  # never waited, and nobody can any more
        self.marks = poison.marks()
        self.poisoned: dict[int, str] = {}  # mark -> where the receive was posted

    def before(self, event: Event) -> None:
        """Refuse an operation that touches memory which is not the program's; else watch it."""
        if is_engines(sys._getframe(1)) or not is_on("requests"):
            return
        if is_on("temporary"):
            self._refuse_temporary(event)  # before we hold the array ourselves
        writes = event.out
        reads = None if event.operation == "recv" or event.array is event.out else event.array
        if reads is not None and writes is not None and np.may_share_memory(reads, writes):
            reads = None  # an operation in place changes it itself
        self._refuse_overlap(event, reads, writes)
        if is_on("read before wait") and event.operation != "recv":
            self._refuse_poison(event)
        if not event.blocking:
            self._take_off(event, reads, writes)

    def _take_off(self, event: Event, reads: np.ndarray | None, writes: np.ndarray | None) -> None:
        flight, key = Flight(event, reads, writes), id(event)
        flight.alive = weakref.ref(event, lambda _: self._drop(key))
        self.flights[key] = flight
        if reads is not None and is_on("changed in flight"):
            flight.digest = digest(reads)
        if event.operation == "recv" and writes is not None and writes.size and writes.dtype.kind != "b":
            if not is_on("read before wait"):
                return
            flight.mark, flight.saved = next(self.marks), writes.copy()
            self.poisoned[flight.mark] = event.line
            flight.poison()

    def arriving(self, event: Event, header: Header, source: int) -> None:
        """See whether the program has written into the buffer that a message is about to fill."""
        flight = self.flights.get(id(event))
        if flight is not None and flight.mark:
            flight.changed = not flight.is_intact()

    def after(self, event: Event) -> None:
        """Keep aside what has come, until the program asks for it."""
        flight = self.flights.get(id(event))
        if flight is not None and flight.mark and flight.writes is not None:
            flight.arrived = flight.writes.copy()
            flight.poison()

    def failed(self, event: Event) -> None:
        """Leave the buffer of a failed receive as it was."""
        flight = self.flights.pop(id(event), None)
        if flight is not None and flight.saved is not None and flight.writes is not None:
            flight.writes[...] = flight.saved

    def waited(self, event: Event) -> None:
        """Give the memory back; refuse a second wait, and memory that has changed."""
        flight = self.flights.get(id(event))
        if flight is None or is_engines(sys._getframe(1)):
            return
        line = source_line()
        if flight.waited and is_on("waited twice"):
            raise self._fault(
                event,
                "waited twice",
                f"the request of {flight.call} at {flight.line} was waited for at {flight.waited}, and again at "
                f"{line}. One wait() ends a request: make a new one for the next message, or take it off your list",
            )
        flight.waited = line
        self.tested(event)

    def tested(self, event: Event) -> None:
        """Give the memory back; refuse memory that has changed, or was read."""
        flight = self.flights.get(id(event))
        if flight is None or flight.over:
            return
        changed = flight.changed or not flight.is_intact()
        mark, line = flight.mark, source_line()
        buffers = [one.writes for one in list(self.flights.values()) if one.mark and one.writes is not None]
        flight.release()
        if changed and is_on("changed in flight"):
            whose = "was to fill" if mark else "was reading"
            raise self._fault(
                event,
                "changed in flight",
                f"buffer changed while in flight: {flight.call} at {flight.line} {whose} it, and it was changed before "
                f"the request's end at {line}. Change it only after wait()",
            )
        name = _who_has_read(mark, buffers) if mark else None
        if name is not None:
            raise self._fault(
                event,
                "read before wait",
                f"{name} was computed from the buffer of {flight.call} at {flight.line} before the request's end at "
                f"{line}. Until then nothing has arrived, and the guard fills the buffer with NaN: wait() first",
            )

    def never_waited(self) -> list[Flight]:
        """Give the requests whose end the program has never heard of."""
        return self.dropped + [flight for flight in list(self.flights.values()) if not flight.over]

    def forget(self) -> None:
        """Begin anew: the program has ended."""
        self.flights, self.dropped, self.poisoned = {}, [], {}

    def _drop(self, key: int) -> None:
        """Forget a request that nobody holds any more."""
        flight = self.flights.pop(key, None)
        if flight is not None and not flight.over:
            flight.reads = flight.writes = flight.saved = flight.arrived = None
            self.dropped.append(flight)

    def _refuse_temporary(self, event: Event) -> None:
        if (
            event.out is not None
            and event.operation in ("recv", "sendrecv")
            and temporary.is_temporary(event)
        ):
            raise self._fault(
                event,
                "temporary",
                f"{event.call} at {event.line} fills an array that nobody holds: what arrives would be lost. An index "
                "like x[[0, 2]], and .copy() or .astype(), make a new array: receive into an array with a name, and "
                "then assign x[[0, 2]] = it; or give a slice, x[2:4]",
            )

    def _refuse_overlap(self, event: Event, reads: np.ndarray | None, writes: np.ndarray | None) -> None:
        """Refuse to write into memory that is in flight, and to read what is still to be filled."""
        for flight in list(self.flights.values()):
            if flight.over:
                continue
            if _overlap(writes, flight.reads) or _overlap(writes, flight.writes):
                kind, does, uses = "changed in flight", "writes into", "is using"
            elif _overlap(reads, flight.writes):
                kind, does, uses = "read before wait", "reads", "is to fill"
            else:
                continue
            if is_on(kind):
                text = f"{event.call} at {event.line} {does} the buffer that {flight.call} at {flight.line} {uses}"
                raise self._fault(event, kind, f"{text}: wait() for that request first", flight.line)

    def _refuse_poison(self, event: Event) -> None:
        """Refuse to send on what was read from a buffer too early."""
        if not self.poisoned or event.array is None:
            return
        for mark in poison.found(event.array):
            if mark in self.poisoned:
                line = self.poisoned[mark]
                text = (
                    f"{event.call} at {event.line} was given what the program has read from the buffer of the irecv at "
                    f"{line} before its wait(). Until then nothing has arrived, and the guard fills it with NaN"
                )
                raise self._fault(event, "read before wait", text, line)

    def _fault(self, event: Event, kind: str, text: str, line: str | None = None) -> RequestFault:
        comm = event.communicator
        rank = comm.members[comm.rank]
        fault = RequestFault(f"{report.HEAD}rank {rank}: {text}", kind, (rank,), {rank: line or event.line})
        report.note_first(fault)
        return fault


def digest(array: np.ndarray) -> int:
    """Give a number that changes with any byte of an array."""
    if not array.flags.c_contiguous:  # a copy, and not an array: np.empty would find what was in a small one
        return zlib.crc32(array.tobytes())
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)


def _overlap(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """Say whether two arrays have a byte in common; where that is hard to say, no."""
    if a is None or b is None or not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]
    except Exception:  # np.exceptions.TooHardError, which has another name before NumPy 1.25
        return False


def _who_has_read(mark: int, buffers: list[np.ndarray]) -> str | None:
    """Give the name of a variable of the program that holds poison of this mark; None: there is none.

    buffers: of the receives that are open, where poison must be; there are fewer marks than receives may be open.
    """
    for frame in _program_frames(sys._getframe(1)):
        for name, value in list(frame.f_locals.items()):
            is_array = isinstance(value, np.ndarray)
            if is_array and any(np.may_share_memory(value, buffer) for buffer in buffers):
                continue
            if poison.is_all(value, mark):
                return name
    return None


def _program_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Give the innermost frames of the user's program."""
    while frame is not None and is_ours(frame):
        frame = frame.f_back
    for _ in range(FRAMES):
        if frame is None or is_ours(frame):
            return
        yield frame
        frame = frame.f_back
