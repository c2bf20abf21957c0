"""What all operations of a communicator share: who the ranks are, what was sent, how an operation is started.

An operation's arguments are checked before anything is sent. Then listeners are told, who may refuse it; then it
is handed to `progress.py` as a generator. Collectives are numbered: ranks start them in the same order, so the
number is the same on every rank, and so is the tag made from it.

Read `point_to_point.py` and `communicator.py` next: the operations themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from minidist.comm.arrays import as_array
from minidist.comm.channel import Channel
from minidist.comm.errors import CommError
from minidist.comm.events import Event, Listener, Recorder, source_line
from minidist.comm.progress import Progress, Request, Steps
from minidist.comm.transport import Endpoint, TransportRequest

ANY_SOURCE = -1  # for recv: whoever sends first
Kind = TypeVar("Kind", bound="Core")
PURPOSES = ("gradient", "activation", "weights", "control", "guard", "user")


class Core:
    """A group of ranks, and this rank's place in it."""

    def __init__(self, endpoint: Endpoint, name: str = "world", parent: Core | None = None) -> None:
        self.endpoint, self.name, self.parent = endpoint, name, parent
        self.rank: int = endpoint.rank
        self.size: int = endpoint.size
        # Equal on all its ranks, and on no other communicator.
        self.key: tuple[object, ...] = parent.key if parent else ()
        self.members: tuple[int, ...] = endpoint.members  # world ranks, in the order of the ranks here
        self.nodes: tuple[int, ...] = endpoint.nodes  # of each rank here: which machine it is on
        self.transport: str = endpoint.transport  # "mpi" or "threads"
        # What a rank has in flight is one list for all its communicators: whoever waits moves all of it.
        self.progress: Progress = parent.progress if parent else Progress(endpoint.idle)
        self.listeners: list[Listener] = list(parent.listeners) if parent else []
        self.recorder: Recorder | None = parent.recorder if parent else None
        # What operations send and receive through; who follows every message puts a kind of its own here.
        self.new_channel: Callable[..., Channel] = parent.new_channel if parent else Channel
        # Whether `send` waits for its receiver even where the message would fit into a buffer.
        self.synchronous: bool = parent.synchronous if parent else False
        self.freed = False  # given back: nothing can be started any more
        self._sent = {purpose: [0, 0] for purpose in PURPOSES}
        self._collectives = 0  # started so far: the number of the next one
        self._turn: Turn | None = None  # of the last collective that listeners were told of
        self._messages = 0  # point-to-point operations started so far
        self._blocking = False  # whether the operation that begins is waited for at once

    def __repr__(self) -> str:
        return f"<Communicator {self.name!r}: rank {self.rank} of {self.size}, {self.transport}>"

    @property
    def root(self) -> Core:
        """The communicator that this one was split from in the beginning; maybe itself."""
        return self if self.parent is None else self.parent.root

    def quiet(self: Kind) -> Kind:
        """Give the same ranks once more, without listeners, with counters and a progress of their own.

        What is said there is no part of the program: nobody hears of it, and nobody counts it.
        """
        return type(self)(self.endpoint, self.name)

    @property
    def counters(self) -> dict[str, tuple[int, int]]:
        """Give {purpose: (messages, payload bytes)} sent by this rank here and on communicators split from here."""
        return {purpose: (messages, nbytes) for purpose, (messages, nbytes) in self._sent.items()}

    def count(self, purpose: str, nbytes: int, messages: int = 1) -> None:
        """Count messages of `nbytes` bytes each; called where they are sent."""
        group: Core | None = self
        while group is not None:
            sent = group._sent[purpose]
            sent[0] += messages
            sent[1] += messages * nbytes
            group = group.parent

    def abort(self, code: int = 1) -> None:
        """End every rank of the job at once, with this exit code."""
        self.endpoint.abort(code)

    def next_channel(self, purpose: str) -> Channel:
        """Give the channel with the next collective's tag; every rank must ask for it in the same order."""
        tags = self.endpoint.collective_tags
        tag = tags[self._collectives % len(tags)]
        self._collectives += 1
        return self.new_channel(self, tag, purpose)

    def _collective(
        self,
        operation: str,
        steps: Callable[[Channel], Steps],
        purpose: str,
        array: np.ndarray | None = None,
        **facts: Any,
    ) -> Request:
        """Start the next collective."""
        number, channel = self._collectives, self.next_channel(purpose)
        return self._start(operation, steps(channel), purpose, array, sequence=number, **facts)

    def _point_to_point(
        self,
        operation: str,
        steps: Callable[[Channel], Steps],
        purpose: str,
        array: np.ndarray | None,
        peer: int,
        tag: int,
        **facts: Any,
    ) -> Request:
        """Start to send or receive one message; a large payload travels under a tag of its own."""
        largest, tags = self.endpoint.largest_tag, self.endpoint.payload_tags
        if not 0 <= tag <= largest:
            raise ValueError(f"tag is {tag}, expected 0 to {largest}")
        self._messages += 1
        channel = self.new_channel(self, tag, purpose, tags[self._messages % len(tags)])
        return self._start(operation, steps(channel), purpose, array, channel, peer=peer, tag=tag, **facts)

    def _now(self, start: Callable[..., Request], *arguments: Any, **options: Any) -> Any:
        """Start an operation and wait for it: the form of a call that comes back with the result."""
        self._blocking = True
        try:
            request = start(*arguments, **options)
        finally:
            self._blocking = False
        return request.wait()

    def _start(
        self,
        operation: str,
        steps: Steps,
        purpose: str,
        array: np.ndarray | None,
        channel: Channel | None = None,
        **facts: Any,
    ) -> Request:
        """Tell the listeners, who may refuse by raising, and start an operation."""
        if purpose not in PURPOSES:
            raise ValueError(f"purpose is {purpose!r}, expected one of {', '.join(map(repr, PURPOSES))}")
        if self.freed:
            raise CommError(
                f"{operation} on {self.name!r}, which this program has freed: free() it after its last use"
            )
        if array is not None:
            facts.update(dtype=array.dtype, shape=array.shape)
        request = Request(self, operation, steps, facts)
        line = source_line() if self.listeners or self.recorder else ""
        if self.recorder:
            call = operation if self._blocking else f"i{operation}"
            request.number = self.recorder.begins(self, call, line, array, facts)
        if self.listeners:
            nbytes = 0 if array is None else array.nbytes
            request.event = Event(
                operation,
                self,
                purpose,
                line,
                bytes=nbytes,
                blocking=self._blocking,
                array=array,
                **facts,
            )
            if channel is not None:
                channel.event = request.event
            gates = [
                gate for listener in self.listeners if (gate := listener.before(request.event)) is not None
            ]
            turn = Turn()
            if channel is None:
                turn.before, self._turn = self._turn, turn
            request.steps = _in_turn(gates, turn, steps)
        return self.progress.start(request)

    def _check_rank(self, rank: int, what: str, any_source: bool = False) -> None:
        if not 0 <= rank < self.size and not (any_source and rank == ANY_SOURCE):
            alternative = " or ANY_SOURCE" if any_source else ""
            raise ValueError(
                f"{what} is {rank}, expected 0 to {self.size - 1}{alternative}: "
                f"{self.name!r} has {self.size} rank{'s' * (self.size > 1)}"
            )

    def _with_rows(self, x: Any, operation: str) -> np.ndarray:
        array = as_array(x)
        if array.ndim == 0:
            raise ValueError(f"{operation} cuts x along axis 0, and x has shape (): give at least one dim")
        return array


class Turn:
    """Complete when the collective before this one, if there is one, has begun or was refused."""

    peer: int | None = None
    source, count = -1, 0
    sending, tag = False, -1

    def __init__(self) -> None:
        self.before: Turn | None = None
        self.over = self.done = False

    def test(self) -> bool:
        """Say whether it is this one's turn."""
        self.done = self.before is None or self.before.over
        return self.done


def _in_turn(gates: list[Iterable[TransportRequest]], turn: Turn, steps: Steps) -> Steps:
    """Let an operation begin after its gates and in its turn: gates may end in another order on another rank.

    Ranks that meet in memory number their meetings as they begin them.
    """
    try:
        yield from gates
        yield (turn,)
    finally:
        turn.over, turn.before = True, None
    return (yield from steps)
