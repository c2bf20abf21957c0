"""Follow every message: how many bytes went to whom, and which send belongs to which receive.

    rank 0   send #0 to 1   send #1 to 1           messages of one pair, communicator and tag arrive in the order in
    rank 1   receive #0 of 0        receive #1     which they were sent: so their number says which belong together

A `FollowedChannel` takes the place of `comm.channel.Channel`, through which all operations send and receive. So the
messages inside a collective are followed like those that a program sends itself. What is read and written in shared
memory is counted as the counters do (`comm/shared_memory.py`), and is no message. Read next: `clocks.py`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.comm.channel import Channel, Place
from minidist.comm.progress import Steps

if TYPE_CHECKING:
    from minidist.comm.core import Core
    from minidist.comm.transport import TransportRequest

Key = tuple[
    str, tuple[int, ...], int, int, int, int
]  # (communicator, its members, tag, source, dest, number)
End = tuple[float, Key, int, str]  # (when, which message, bytes, purpose): one end of a message


class Messages:
    """What this rank has sent and received. sent: payload bytes to each rank of the world."""

    def __init__(self, ranks: int, most: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.sent = [0] * ranks
        self.sends: deque[End] = deque(maxlen=most)
        self.receives: deque[End] = deque(maxlen=most)
        self.clock = clock
        self.on = False  # whether bytes are counted
        self.noting = False  # whether messages are written down
        self.over = False  # whether none will be any more, so that they need no numbers
        # Of point-to-point messages, how many there were of each communicator, tag and peer. A collective has a
        # channel of its own, and counts there.
        self.numbers: dict[Any, int] = {}
        self.coming: list[tuple[Key, int, str]] = []  # started, and not yet taken by their operation

    def channel(self, comm: Core, tag: int, purpose: str, payload_tag: int | None = None) -> Channel:
        """Make a channel for one operation."""
        kind = CountedChannel if self.over else FollowedChannel
        return kind(self, comm, tag, purpose, payload_tag)

    def begin(self) -> None:
        """Begin to write down; the numbers go on."""
        self.sent[:] = [0] * len(self.sent)
        self.sends.clear()
        self.receives.clear()
        self.on = self.noting = True

    def arrived(self, coming: list[tuple[Key, int, str]]) -> None:
        """Write down that these have come."""
        if self.noting:
            now = self.clock()
            self.receives.extend([(now, *one) for one in coming])


class CountedChannel(Channel):
    """A channel that adds up what goes to which rank."""

    def __init__(
        self, messages: Messages, comm: Core, tag: int, purpose: str, payload_tag: int | None = None
    ) -> None:
        super().__init__(comm, tag, purpose, payload_tag)
        self.messages = messages

    def count(self, dest: int, nbytes: int, messages: int = 1) -> None:
        """Count, and add to what went to `dest`."""
        self.comm.count(self.purpose, nbytes, messages)
        if self.messages.on:
            self.messages.sent[self.comm.members[dest]] += messages * nbytes

    def count_shared(self, nbytes: int) -> None:
        """Count, and add to what went to all others."""
        super().count_shared(nbytes)
        for rank, member in enumerate(self.comm.members):
            if rank != self.rank and self.messages.on:
                self.messages.sent[member] += 2 * nbytes


class FollowedChannel(CountedChannel):
    """A channel that also writes down each message that passes through it."""

    def __init__(
        self, messages: Messages, comm: Core, tag: int, purpose: str, payload_tag: int | None
    ) -> None:
        super().__init__(messages, comm, tag, purpose, payload_tag)
        self._numbers = messages.numbers if payload_tag is not None else {}

    def send(self, array: np.ndarray, dest: int) -> TransportRequest:
        """Send, and write it down."""
        self._sent(dest, array.nbytes)
        return super().send(array, dest)

    def send_message(self, array: np.ndarray, dest: int, synchronous: bool = False) -> list[TransportRequest]:
        """Send, and write it down."""
        self._sent(dest, array.nbytes)
        return super().send_message(array, dest, synchronous)

    def receive(self, buffer: np.ndarray, source: int) -> TransportRequest:
        """Start to receive; the operation hears when it has come (`operations.py`)."""
        if not self.messages.over:
            key = self._key(source, self.comm.rank)
            if self.messages.noting:
                self.messages.coming.append((key, buffer.nbytes, self.purpose))
        return super().receive(buffer, source)

    def receive_message(self, source: int, place: Place) -> Steps:
        """Receive, and write it down."""
        array, sender = yield from super().receive_message(source, place)
        if not self.messages.over:
            self.messages.arrived([(self._key(sender, self.comm.rank), array.nbytes, self.purpose)])
        return array, sender

    def _sent(self, dest: int, nbytes: int) -> None:
        messages = self.messages
        if not messages.over:
            key = self._key(self.comm.rank, dest)
            if messages.noting:
                messages.sends.append((messages.clock(), key, nbytes, self.purpose))

    def _key(self, source: int, dest: int) -> Key:
        """Name the next message between two ranks of this channel."""
        comm = self.comm
        about = comm.name, comm.members, self.tag, comm.members[source], comm.members[dest]
        number = self._numbers[about] = self._numbers.get(about, -1) + 1
        return (*about, number)
