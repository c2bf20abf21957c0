"""What a collective algorithm sees of its communicator: send and receive, and nothing else.

A channel belongs to one operation. It holds the tag that keeps the operation's messages apart from all others
in flight, and the purpose under which they are counted. Ranks start collectives in the same order, so the
collective's number is the same everywhere, and so is its tag.

Read `progress.py` next: what becomes of the requests that sending and receiving give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from minidist.comm import message
from minidist.comm.progress import Steps

if TYPE_CHECKING:
    from minidist.comm.core import Core
    from minidist.comm.events import Event
    from minidist.comm.transport import TransportRequest

Place = Callable[[message.Header, int], np.ndarray]  # (header, sender) -> the C-ordered array to be filled


class Channel:
    """Send and receive the messages of one operation."""

    def __init__(self, comm: Core, tag: int, purpose: str, payload_tag: int | None = None) -> None:
        self.comm, self.tag, self.purpose = comm, tag, purpose
        self.rank, self.size = comm.rank, comm.size
        # Within a collective messages of one pair arrive in order, so header and payload may share a tag.
        self.payload_tag = tag if payload_tag is None else payload_tag
        self.event: Event | None = None  # of a message that listeners have been told of

    def count(self, dest: int, nbytes: int, messages: int = 1) -> None:
        """Count messages of `nbytes` bytes each to rank `dest`, or what takes their place."""
        self.comm.count(self.purpose, nbytes, messages)

    def send(self, array: np.ndarray, dest: int) -> TransportRequest:
        """Send the bytes of a C-ordered array whose size the receiver knows."""
        self.count(dest, array.nbytes)
        return self.comm.endpoint.isend(array, dest, self.tag)

    def receive(self, buffer: np.ndarray, source: int) -> TransportRequest:
        """Fill a C-ordered array with exactly its number of bytes from `source`."""
        return self.comm.endpoint.irecv(buffer, source, self.tag, exact=True)

    def mpi_all_reduce(self, x: np.ndarray, op: str) -> TransportRequest:
        """Start MPI's own all-reduce in place; counted as one message to nobody: what MPI really sends is unknown."""
        self.count(self.rank, x.nbytes)
        return self.comm.endpoint.iall_reduce(x, op)

    def meet(self, numbers: list[np.ndarray], place: int, number: int) -> Sequence[TransportRequest]:
        """Tell all others that this rank has come to `number`, and wait until they have (`shared_memory.py`)."""
        return self.comm.endpoint.meet(numbers, place, number, self.tag)

    def count_shared(self, nbytes: int) -> None:
        """Count what was read of, and written to, the same piece of every other rank's memory."""
        self.comm.count(self.purpose, nbytes, 2 * (self.size - 1))

    def send_message(self, array: np.ndarray, dest: int, synchronous: bool = False) -> list[TransportRequest]:
        """Send an array together with what it is; counted as one message.

        synchronous: complete only when a receive for it has been started.
        """
        self.count(dest, array.nbytes)
        endpoint = self.comm.endpoint
        envelope = message.pack(array, self.payload_tag, self.event.line if self.event else "")
        requests = [endpoint.isend(envelope, dest, self.tag, synchronous)]
        if array.nbytes > message.INLINE:
            requests.append(endpoint.isend(array, dest, self.payload_tag))
        return requests

    def receive_message(self, source: int, place: Place) -> Steps:
        """Receive an array that says what it is into where `place(header, sender)` says; give (array, source).

        If `place` raises, the payload is received all the same (and forgotten), so that the sender can go on.
        """
        endpoint = self.comm.endpoint
        envelope = np.empty(message.LONGEST, np.uint8)
        request = endpoint.irecv(envelope, source, self.tag, exact=False)
        yield (request,)
        header, inline = message.unpack(envelope[: request.count])
        refusal: Exception | None = None
        try:
            if self.event is not None:
                for listener in self.comm.listeners:
                    listener.arriving(self.event, header, request.source)
            array = place(header, request.source)
        except Exception as error:
            refusal, array = error, np.empty(header.shape, header.dtype)
        if header.nbytes <= message.INLINE:
            array.reshape(-1).view(np.uint8)[:] = inline
        else:
            yield (endpoint.irecv(array, request.source, header.payload_tag, exact=True),)
        if refusal is not None:
            raise refusal
        return array, request.source

    def exchange(self, array: np.ndarray, dest: int, source: int, place: Place) -> Steps:
        """Send one message and receive another at the same time; give the array received."""
        sends = self.send_message(array, dest)
        received, _ = yield from self.receive_message(source, place)
        yield sends
        return received


def new_array(header: message.Header, sender: int) -> np.ndarray:
    """Place a message into a new array."""
    return np.empty(header.shape, header.dtype)
