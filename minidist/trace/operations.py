"""Follow every operation of a rank's communicators: when it works for them, when it waits, and what is in flight.

    main track    iall_reduce | backward ...... | wait ............... |
                              |                 | moving |  idle  |    |     idle: from when nothing moves until it does
    in flight     | all_reduce ........................................|     while the rank does other things, too

All operations of all communicators go through the rank's one `comm.progress.Progress`: `start`, `wait`, `advance` and
the transport's `idle`, which is called only while nothing moves. These four are wrapped (`Recorder.wrap`).
Read next: `messages.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from minidist.comm.progress import Progress, Request, Steps

if TYPE_CHECKING:
    from minidist.trace.record import Recorder, Row


class Operations:
    """What this rank has in flight, and where it waits."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.clock = recorder, recorder.clock
        progress = recorder.comm.progress
        self._start, self._wait = progress.start, progress.wait
        self._advance, self._idle = progress.advance, progress.idle
        self.progress = progress
        self.microbatch: int | None = None  # of the operation that starts next, if somebody knows it
        self._flying: dict[int, Row] = {}  # by the request's id: its start
        self._depth = 0  # of waits in waits
        self._since: float | None = None  # the last thing that moved before this rank became idle
        self._idle_from = 0.0
        self._waits_for: tuple[str, int | None] = ("", None)
        self._where = recorder.where()  # of the operation that is waited for
        for name in ("start", "wait", "advance", "idle"):
            recorder.wrap(progress, name, getattr(self, name))
        recorder.wrap(progress, "at_once", False)

    def start(self, request: Request) -> Request:
        """Start an operation, which may come back before it is complete."""
        recorder, facts = self.recorder, request.facts
        step, microbatch, chunk, layer = recorder.where()
        if self.microbatch is not None:
            microbatch, self.microbatch = self.microbatch, None
        nbytes = math.prod(facts["shape"]) * facts["dtype"].itemsize if "shape" in facts else None
        peer = facts.get("peer", -1)
        world = request.communicator.members[peer] if peer >= 0 else None
        if request.communicator.size > 1:
            request.steps = self._followed(request.steps)
        began = self.clock()
        self._start(request)
        now = self.clock()
        nbytes = nbytes or _bytes(request)
        about = request.operation, began, now, step, microbatch, chunk, layer, nbytes, world
        row: Row = ("communication", *about)
        recorder.spans.append(row)
        if not request.done and request.operation != "answer":  # that one waits to be asked, not for anything
            self._flying[id(request)] = row
        return request

    def _followed(self, steps: Steps) -> Steps:
        """Carry out an operation, and write down when what it waits for has come."""
        messages = self.recorder.messages
        try:
            while True:
                try:
                    pending = next(steps)
                except StopIteration as end:
                    return end.value
                coming, messages.coming = messages.coming, []
                yield pending
                if coming:
                    messages.arrived(coming)
        finally:
            steps.close()

    def wait(self, request: Request) -> None:
        """Wait for an operation. What is waited for as soon as it has started was never in flight beside anything."""
        spans, key, began = self.recorder.spans, id(request), self.clock()
        row = self._flying.get(key)
        if row is not None and spans and spans[-1] is row:
            spans.pop()
            del self._flying[key]
            began = row[2]
        step, microbatch, chunk, layer = self.recorder.where()
        nbytes = peer = None
        if row is not None:
            microbatch, chunk, layer, nbytes, peer = row[5:]
        where = step, microbatch, chunk, layer
        outer, self._where = self._where, where
        self._depth += 1
        try:
            self._wait(request)
        finally:
            self._depth -= 1
            now = self.clock()
            if self._since is not None:
                self._end_idle(now)
            self._where = outer
            nbytes = nbytes or _bytes(request)
            spans.append(("communication", request.operation, began, now, *where, nbytes, peer))

    def advance(self) -> bool:
        """Move what is in flight."""
        running = self.progress.running
        if not running:
            return False
        began = self.clock()
        if not self._advance():
            return False
        if self._since is not None:
            self._end_idle(began)
        now = self.clock()
        for request in running:
            if request.done and (row := self._flying.pop(id(request), None)):
                nbytes = row[8] or _bytes(request)
                self.recorder.flights.append(("flight", row[1], row[2], now, *row[4:8], nbytes, row[9]))
        if not self._depth:
            self.recorder.spans.append(
                ("communication", "progress", began, now, *self.recorder.where(), None, None)
            )
        return True

    def idle(self, progress: Progress, request: Request, since: float) -> None:
        """Let time pass; nothing has moved since `since`. It comes often: the clock is read only when that is new."""
        if since is not self._since:
            now = self.clock()
            if self._since is not None:
                self._end_idle(now)
            self._since, self._idle_from = since, now
            peer = request.pending[0].peer if request.pending else None
            self._waits_for = request.operation, peer
        self._idle(progress, request, since)

    def _end_idle(self, now: float) -> None:
        operation, peer = self._waits_for
        self.recorder.spans.append(("idle", operation, self._idle_from, now, *self._where, None, peer))
        self._since = None


def _bytes(request: Request) -> int | None:
    """Count the bytes of what was received, where only the message said it."""
    return request.result.nbytes if isinstance(request.result, np.ndarray) else None
