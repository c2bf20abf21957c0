"""The guard itself: what it does when a rank begins an operation, is about to sleep, and has ended one.

A rank that waits looks around before each nap. On threads the hub asks for the verdict (`on_threads.py`). On MPI a
rank says what it waits for, and reads what the others have said: on the board (`board.py`), or in letters where they
are on several machines (`letters.py`). A rank that computes, or is stopped, is never accused.

Read `fingerprints.py` (before), `facts.py`, `graph.py` and `verdict.py` (while a rank waits) next.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.comm import guard
from minidist.comm.errors import CommError
from minidist.comm.events import Event, Listener, source_line
from minidist.comm.guard import facts, fingerprints, on_threads
from minidist.comm.guard.describe import operations
from minidist.comm.guard.facts import Facts
from minidist.comm.guard.fingerprints import Agreement
from minidist.comm.guard.graph import Sent, Standing, runs_behind, stuck
from minidist.comm.guard.letters import Letters
from minidist.comm.guard.messages import Messages
from minidist.comm.guard.polling import only_test_ends
from minidist.comm.guard.report import note, short, warn
from minidist.comm.guard.requests import Requests
from minidist.comm.guard.unfinished import Unfinished
from minidist.comm.guard.verdict import judge
from minidist.errors import UserError

if TYPE_CHECKING:
    from minidist.comm.communicator import Communicator
    from minidist.comm.core import Core
    from minidist.comm.hub import Hub
    from minidist.comm.transport import TransportRequest

PATIENCE = 0.02  # seconds that a rank waits before it looks for a deadlock, and between two looks for one
POLLS = 0.2  # seconds after which a rank that polls without an end counts as waiting
# Seconds of waiting for a rank that runs before it is named, and before it is named again.
SLOW, AGAIN = 5.0, 30.0
ALIKE = 1.0  # seconds: who has waited longest by less than this, has not
CHAIN = ", behind others that wait for it,"


class Guard(Listener):
    """Watch one rank: `comm` and all communicators that will be split from it."""

    def __init__(self, comm: Communicator, board: Facts | None = None) -> None:
        self.comm, self.me = comm, comm.members[comm.rank]
        self._quiet: dict[tuple[object, ...], Core] = {}
        self._packed: dict[Any, tuple[np.ndarray, int]] = {}
        self.board, self.slots = board, None
        self._moves: list[Any] = []  # what was in flight when the board was told
        self._unreceived: list[Sent] | None = None  # None: this rank has not waited for PATIENCE yet
        self._next = self._since = 0.0
        self._polled: list[Any] = []  # what was in flight when the program began to ask for it
        self._polls_since = 0.0
        self._warned = 0.0
        self._slow = seconds_until_slow()
        if comm.size > 1 and comm.transport == "mpi" and board is None:
            self.board, self.slots = facts.of(comm, self.me)
            atexit.register(self.leave)  # before leaving.farewell, which was registered earlier
        requests = Requests()
        self.unfinished = Unfinished(requests)
        self._hub: Hub | None = None
        if comm.transport == "threads" and guard.is_on(guard.DEADLOCK):
            self._hub = comm.endpoint.hub  # type: ignore[attr-defined]
            on_threads.join(self._hub, self.me, self.unfinished)
        comm.listeners += [self, requests, self.unfinished, Messages()]
        if isinstance(self.board, Letters):
            comm.listeners.append(self.board.counts)
        comm.synchronous = guard.is_on(guard.SEND)

    def before(self, event: Event) -> list[TransportRequest] | None:
        """Hold a collective back until every rank has come with the same."""
        comm = event.communicator
        if event.sequence is None or comm.size == 1 or not guard.is_on(guard.MISMATCH):
            return None
        said = (event.call, event.dtype, event.shape, event.reduction, event.root, event.counts, event.line)
        packed = self._packed.get(said)
        if packed is None:
            fingerprint = fingerprints.of(event)
            packed = self._packed[said] = fingerprints.pack(fingerprint), fingerprints.digest(fingerprint)
        if self.slots is not None and comm.key == self.comm.key:
            return self.slots.gate(comm, event.sequence, *packed)
        quiet = self._quiet.get(comm.key)
        if quiet is None:
            quiet = self._quiet[comm.key] = comm.quiet()
        return fingerprints.gate(quiet, event, packed[0])

    def waiting(self, event: Event) -> None:
        """Look around: can this rank ever go on?"""
        if self.board is None:
            return
        running = event.communicator.progress.running
        in_flight = [pending for request in running for pending in request.pending]
        now = time.monotonic()
        if in_flight != self._moves:
            self._moves, self._since, self._next = in_flight, now, now + PATIENCE
            self._unreceived = None
            self.board.say("waits", operations(event, running))
        self.board.look(self.comm.members)
        if now < self._next:
            return
        self._next = now + PATIENCE
        if self._unreceived is None:
            self._unreceived = []
            self.board.say_more(self.unfinished.recently_sent(self.me), [])
        error = self.board.decided() or self._look_around(self.board)
        if error is not None:
            self.board.say("runs")
            self._moves = []
            raise error
        if now - self._since > self._slow and now - self._warned > AGAIN and guard.is_on(guard.STRAGGLER):
            self._name_the_slow(self.board, now)

    def polled(self, event: Event) -> None:
        """Take a rank that asks for ever whether an operation is complete for one that waits in it."""
        running = event.communicator.progress.running
        in_flight = [pending for request in running for pending in request.pending]
        now = time.monotonic()
        if in_flight != self._polled:
            self._polled, self._polls_since = in_flight, now
        elif now - self._polls_since > POLLS and only_test_ends(source_line()):
            if self._hub is not None:
                self._hub.poll(self.me, next(request for request in running if request.event is event))
            self.waiting(event)

    def _look_around(self, board: Facts) -> CommError | None:
        """Give the report if this rank is stuck, has been for long enough, and is the lowest of those who are."""
        if not guard.is_on(guard.DEADLOCK):
            return None
        standings = board.standings(self.comm.members)
        if not guard.is_on(guard.LEFT):
            standings = {rank: standing for rank, standing in standings.items() if standing.state != "left"}
        found = stuck(standings)
        if self.me in found:
            self._say_unreceived(board, standings)
        if not board.settled(found, self.comm.members):
            return None
        if any(standings[rank].waits_in.differs for rank in found):  # no more of its ranks will come
            for pending in self._moves:
                if isinstance(pending, Agreement):
                    pending.hurry()
            return None
        if self.me != min(found):
            return None
        error = judge(found, standings)
        note(error, min(standings[rank].ago for rank in found))
        board.decide(error)
        return error

    def _say_unreceived(self, board: Facts, standings: Mapping[int, Standing]) -> None:
        """Say which messages have been sent to this rank and taken by none of its receives."""
        to_me = [one for standing in standings.values() for one in standing.sent if one.dest == self.me]
        unreceived = self.unfinished.unreceived(to_me)
        if unreceived != self._unreceived:
            self._unreceived = unreceived
            board.say_more(self.unfinished.recently_sent(self.me), unreceived)

    def _name_the_slow(self, board: Facts, now: float) -> None:
        """Warn of a rank that runs while others wait for it; the one that has waited longest says it."""
        standings = board.standings(self.comm.members)
        slow = runs_behind(self.me, standings)
        if not slow:
            return
        rank = min(slow)
        with_me = [other for other in standings if rank in runs_behind(other, standings)]
        longest = max(standings[other].ago for other in with_me)
        if self.me != min(other for other in with_me if standings[other].ago > longest - ALIKE):
            return
        self._warned = now
        op = standings[self.me].waits_in
        chain = (
            "" if any(m.peer == rank for o in standings[self.me].operations for m in o.messages) else CHAIN
        )
        warn(
            "straggler",
            f"rank {rank} is late: rank {self.me} has waited for it{chain} for {now - self._since:.0f} s in "
            f"{op.words()} at {short(op.line)}. It still runs (or is stopped); the job goes on when it comes.",
            sorted(slow),
            {self.me: op.line},
        )

    def after(self, event: Event) -> None:
        """Note that an operation is complete."""
        if self._moves and self.board is not None:
            self._moves = []
            self.board.say("runs")

    def failed(self, event: Event) -> None:
        """Note that an operation has ended without a result."""
        self.after(event)

    def leave(self) -> None:
        """Say that this rank's program has ended in good order."""
        if self.board is not None:
            in_flight = operations(None, self.comm.progress.running)
            self.board.say("left", in_flight, self.unfinished.recently_sent(self.me))


def seconds_until_slow() -> float:
    """Give the seconds that others wait for a rank before it is named."""
    said = os.environ.get("MINIDIST_GUARD_TIMEOUT", str(SLOW))
    try:
        seconds = float(said)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise UserError(f"MINIDIST_GUARD_TIMEOUT is {said!r}, expected seconds, as 10")
    return seconds
