"""Messages from one rank to another.

A message says what it is (`message.py`), so `recv` refuses one of another dtype or shape by name, with its buffer
untouched. Between two ranks messages of one tag arrive in the order in which they were sent.

As MPI does, `send` may return before the message was received if it is small, and waits for the receiver if it is
large: a program in which every rank sends before it receives works by luck with small messages and stands still
with large ones. `sendrecv`, or `isend`, is right for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minidist.comm import collectives
from minidist.comm.arrays import as_array, check_out
from minidist.comm.channel import Channel, new_array
from minidist.comm.core import Core
from minidist.comm.progress import Request, Steps


class PointToPoint(Core):
    """Send to and receive from single ranks."""

    def isend(self, x: Any, dest: int, tag: int = 0, *, purpose: str = "user") -> Request:
        """Start to send x; do not change it before `wait()` is over."""
        array = as_array(x)
        self._check_rank(dest, "dest")
        synchronous = self._blocking and self.synchronous

        def steps(channel: Channel) -> Steps:
            yield channel.send_message(array, dest, synchronous)

        return self._point_to_point("send", steps, purpose, array, dest, tag)

    def send(self, x: Any, dest: int, tag: int = 0, *, purpose: str = "user") -> None:
        """Send x to rank `dest`; x may be changed afterwards. Raises ValueError for a send to itself."""
        if dest == self.rank:
            raise ValueError(
                f"rank {dest} sends to itself and would wait for itself for ever: use isend or sendrecv"
            )
        self._now(self.isend, x, dest, tag, purpose=purpose)

    def irecv(self, out: np.ndarray, source: int, tag: int = 0, *, purpose: str = "user") -> Request:
        """Start to receive into `out`; `wait()` gives the rank it came from."""
        check_out(out)
        self._check_rank(source, "source", any_source=True)

        def steps(channel: Channel) -> Steps:
            return collectives.receive(channel, out, source)

        return self._point_to_point("recv", steps, purpose, out, source, tag, out=out)

    def irecv_new(self, source: int, tag: int = 0, *, purpose: str = "user") -> Request:
        """Start to receive an array whose dtype and shape only the sender knows; `wait()` gives it."""
        self._check_rank(source, "source", any_source=True)

        def steps(channel: Channel) -> Steps:
            array, _ = yield from channel.receive_message(source, new_array)
            return array

        return self._point_to_point("recv", steps, purpose, None, source, tag)

    def recv(self, out: np.ndarray, source: int, tag: int = 0, *, purpose: str = "user") -> int:
        """Fill `out` with what `source` (or ANY_SOURCE) sends under this tag; give the rank it came from.

        Raises MessageMismatch, with `out` untouched, if the message has another dtype or shape.
        """
        return self._now(self.irecv, out, source, tag, purpose=purpose)

    def sendrecv(
        self, x: Any, dest: int, out: np.ndarray, source: int, tag: int = 0, *, purpose: str = "user"
    ) -> int:
        """Send x to `dest` while filling `out` from `source`; give the rank it came from. x may be `out`."""
        array = as_array(x)
        check_out(out)
        self._check_rank(dest, "dest")
        self._check_rank(source, "source", any_source=True)
        if np.may_share_memory(array, out):
            array = array.copy()

        def steps(channel: Channel) -> Steps:
            sends = channel.send_message(array, dest)
            came_from = yield from collectives.receive(channel, out, source)
            yield sends
            return came_from

        return self._now(
            self._point_to_point, "sendrecv", steps, purpose, array, source, tag, dest=dest, out=out
        )
