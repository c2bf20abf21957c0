"""Messages that do not fit where they are received: refused, with the line that sent them beside the one that receives.

Without the guard the receiver refuses them too (`collectives.receive`), but cannot say where they came from: with a
guard each message carries its line (`message.py`).

Read next: `unfinished.py`, which hears of the same messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minidist.comm.arrays import describe
from minidist.comm.errors import MessageMismatch
from minidist.comm.events import Event, Listener
from minidist.comm.guard import MISMATCH, is_on
from minidist.comm.guard.report import HEAD, note_first, source

if TYPE_CHECKING:
    from minidist.comm.message import Header


class Messages(Listener):
    """Compare what arrives with what is to be filled."""

    def arriving(self, event: Event, header: Header, sender: int) -> None:
        """Refuse a message of another dtype or shape than its receiver expects."""
        out = event.out
        if out is None or not is_on(MISMATCH):
            return
        if (header.dtype, header.shape) == (out.dtype.newbyteorder("="), out.shape):
            return
        comm = event.communicator
        me, other = comm.members[comm.rank], comm.members[sender]
        got, expected = describe(header.dtype, header.shape), describe(out.dtype, out.shape)
        text = (
            f"{HEAD}a message does not fit its receive (tag {event.tag} on {comm.name!r}); nothing was written.\n"
            f"  rank {other} sends {got}   {source(header.line)}\n"
            f"  rank {me} expects {expected}   {source(event.line)}\n{advice(header, out.dtype, out.shape)}"
        )
        fault = MessageMismatch(text, "message", [me, other], {other: header.line, me: event.line})
        note_first(fault, 0.0)
        raise fault


def advice(header: Header, dtype: object, shape: tuple[int, ...]) -> str:
    """Say what to look at."""
    if header.shape == shape:
        return f"Receive into np.empty(shape, {header.dtype.name!r}), or send it .astype({str(dtype)!r})."
    if header.shape == shape[::-1]:
        return "One is the transpose of the other."
    return "Receive into an array of the shape that is sent; irecv_new makes one of whatever size comes."
