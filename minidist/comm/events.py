"""What listeners are told: one record for each operation, and where in the user's program it stands.

These are a listener's methods; meters, guard and trace are listeners, and comm knows none of them:

    before(event)    an operation begins; nothing has been sent yet, and raising an error here stops it. What this
                     returns, requests as an operation yields them, must be complete before anything is sent; None: go
    waiting(event)   the rank is about to sleep because the operation cannot go on yet (may come many times)
    arriving(event, header, source)     a message has come for this receive; nothing of it has been written yet
    after(event)     the operation is complete
    failed(event)    it has ended without a result, or will never be complete
    waited(event)    the program has asked for the result with `wait()`
    polled(event)    the program has heard from `test()` that the operation is not complete
    tested(event)    the program has heard from `test()` that the operation is complete

    ended()          the rank's program has ended in good order: what is to be said of it, as plain data
    all_ended(said)  all ranks' have: what each of them has said (told on one rank; nobody else is there any more)

In those above the gap a listener may talk to other ranks, on a communicator of its own that has no listeners.

Who must cost nothing is no listener but a `Recorder`, which every job of several ranks has: for it no event is made.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from minidist.comm.core import Core
    from minidist.comm.message import Header
    from minidist.comm.transport import TransportRequest

_COMM = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(_COMM)) + os.sep


@functools.cache
def _whose(file: str) -> str:
    """Say whose code a file is: comm's, the rest of minidist's, Python's own start, or the user's."""
    if file.startswith(_PACKAGE):
        return "comm" if file.startswith(_COMM) else "ours"
    return "start" if file.startswith("<frozen") or file == threading.__file__ else "user"


def source_line(frame: FrameType | None = None) -> str:
    """Give "file:line" of the user's code that is being run: the innermost line outside minidist.

    Where everything is minidist's own (a training command), the innermost line outside comm.
    """
    at = frame or sys._getframe(1)
    while at.f_back is not None and at.f_code.co_filename == threading.__file__:
        at = at.f_back  # where a blocked thread sleeps
    ours: FrameType | None = None
    step: FrameType | None = at
    while step is not None:
        whose = _whose(step.f_code.co_filename)
        if whose == "user":
            return f"{step.f_code.co_filename}:{step.f_lineno}"
        if whose == "start":
            break  # below here is only Python's own start of the thread or program
        if ours is None and whose == "ours":
            ours = step
        step = step.f_back
    return "?" if ours is None else f"{ours.f_code.co_filename}:{ours.f_lineno}"


def is_engines(frame: FrameType | None = None) -> bool:
    """Say whether minidist itself, and not the user's program, has called the method of comm that is being run."""
    frame = frame or sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_COMM):
        frame = frame.f_back
    return is_ours(frame)


def is_ours(frame: FrameType) -> bool:
    """Say whether a frame runs minidist's code."""
    return frame.f_code.co_filename.startswith(_PACKAGE)


@dataclass(frozen=True)
class Event:
    """Tell a listener about one operation of one rank."""

    operation: str  # "all_reduce", "send", ...
    communicator: Core
    purpose: str
    line: str  # "file:line" of the user's call
    sequence: int | None = None  # the collective's number on this communicator; None for point-to-point
    dtype: np.dtype | None = None
    shape: tuple[int, ...] | None = None
    bytes: int = 0  # of this rank's array
    reduction: str | None = None
    root: int | None = None
    counts: tuple[int, ...] | None = None  # of a reduce_scatter: rows for each rank
    peer: int | None = None  # rank in the communicator; ANY_SOURCE for any
    dest: int | None = None  # of a sendrecv, whose peer is the source
    tag: int | None = None
    blocking: bool = False  # the call comes back when the operation is complete: send, not isend
    array: np.ndarray | None = field(default=None, repr=False, compare=False)  # read or filled until the end
    out: np.ndarray | None = field(default=None, repr=False, compare=False)  # filled; may be array itself
    time: float = field(default_factory=time.monotonic)

    @property
    def call(self) -> str:
        """The name of the method that the program has called: "isend"."""
        return self.operation if self.blocking else f"i{self.operation}"


class Recorder(Protocol):
    """What writes down each operation, by number, while it happens; it cannot refuse one."""

    step: int  # of the training, to be written beside the operations that follow

    def begins(
        self, comm: Core, call: str, line: str, array: np.ndarray | None, facts: dict[str, Any]
    ) -> int:
        """Write down that an operation begins; give its number."""
        ...

    def waits(self, number: int) -> None:
        """Write down that the rank is about to sleep."""
        ...

    def ends(self, number: int, failed: bool = False) -> None:
        """Write down that an operation has ended."""
        ...

    def begin_anew(self) -> None:
        """Forget everything."""
        ...

    def take_back(self) -> None:
        """Forget the last operation that began: it begins once more in another way."""
        ...


class Listener:
    """Be told what a communicator does; what a listener does not ask about it leaves as it is here."""

    def before(self, event: Event) -> Iterable[TransportRequest] | None:
        """Hear that an operation begins."""

    def waiting(self, event: Event) -> None:
        """Hear that the rank is about to sleep."""

    def arriving(self, event: Event, header: Header, source: int) -> None:
        """Hear that a message has come for a receive."""

    def after(self, event: Event) -> None:
        """Hear that an operation is complete."""

    def failed(self, event: Event) -> None:
        """Hear that an operation has ended without a result."""

    def waited(self, event: Event) -> None:
        """Hear that the program has asked for the result."""

    def polled(self, event: Event) -> None:
        """Hear that the program has been told that there is no end yet."""

    def tested(self, event: Event) -> None:
        """Hear that the program has been told of the end; where nothing else is said, as if it had waited."""
        self.waited(event)

    def ended(self) -> Any:
        """Say what the others should know when this rank's program has ended."""

    def all_ended(self, said: list[Any]) -> None:
        """Hear what all ranks have said at their end."""


def last_words(listeners: Sequence[Listener]) -> dict[str, Any]:
    """Give what a rank's listeners have to say at its end, as plain data: {kind of listener: its words}."""
    said = {type(listener).__name__: listener.ended() for listener in listeners}
    return {name: words for name, words in said.items() if words is not None}


def tell_all_ended(listeners: Sequence[Listener], said: Sequence[dict[str, Any]]) -> None:
    """Tell one rank's listeners what those of all ranks have said."""
    for listener in listeners:
        name = type(listener).__name__
        if all(name in words for words in said):
            listener.all_ended([words[name] for words in said])
