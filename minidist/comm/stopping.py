"""How ranks agree after which step they stop, when one of them or all are told to by SIGTERM.

A scheduler that wants its machine back sends SIGTERM, and some time later SIGKILL. In between a training can end its
step and save. But the signal may reach one rank alone, or each in another step, and a rank that just stopped would
leave the others waiting in the middle of theirs.

    rank 0   in step 7, SIGTERM: "stop; I am in step 7"    finishes 7        does 8 as well    stops after 8
    rank 1   in step 8, waits for rank 0 and hears that:   "I am in step 8"  finishes 8        stops after 8

Every rank that steps answers once, with the step it is in, and begins no further step before it has heard all answers;
they all stop after the largest. While nobody asks, nothing is sent, and a step costs one look at the line.

Where ranks are threads of one process, or there is one rank, there is nobody to agree with. What is known here stands
at module level for the same reason as in `line.py`, on which the words travel.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from minidist.comm import line

if TYPE_CHECKING:
    from types import FrameType

    from minidist.comm.communicator import Communicator

NAP = 1e-3  # seconds

_stop: Stop | None = None  # what `heard` and `look` speak to
_early: list[tuple[int, int]] = []  # what was heard before this rank came so far


class Stop:
    """Say after each step whether it is the last one.

    steppers: the world ranks that take steps.
    last: the step after which this rank has stopped; None: it has not.
    """

    def __init__(self, comm: Communicator, steppers: range) -> None:
        self.comm, self.steppers = comm, steppers
        self.asked = False  # a signal has come to this rank
        self.last: int | None = None
        self._me = comm.members[comm.rank]
        self._step = 1  # that this rank is in
        self._answers: dict[int, int] = {}  # world rank -> the step it was in when it heard of it
        self._told = False

    def after(self, step: int) -> bool:
        """Hear that this rank has finished a step (they count from 1); say whether to begin no further one."""
        self._step = step
        self.look()
        if self._answers or self._told:
            while len(self._answers) < len(self.steppers):
                self.comm.progress.advance()  # others may need what we have sent, to come so far
                time.sleep(NAP)
                self.look()
            if step >= max(self._answers.values()):
                self.last = step
                return True
        self._step = step + 1
        return False

    @property
    def stopped(self) -> bool:
        """Say whether this rank has stopped; or, if it takes no steps, whether the others have."""
        return self.last is not None or (self._told and self._me not in self.steppers)

    def look(self) -> None:
        """Look for a signal that has come here, and listen to the others."""
        if self.asked:
            self._answer()
        line.listen()

    def hear(self, rank: int, step: int) -> None:
        """Take another rank's answer; 0: it takes no steps, and only passes the signal on."""
        if step:
            self._answers[rank] = step
        self._answer()

    def _answer(self) -> None:
        if not self._told:
            self._told = True
            mine = self._step if self._me in self.steppers else 0
            if mine:
                self._answers[self._me] = mine
            line.tell({"stop": mine})


@contextlib.contextmanager
def on_sigterm(comm: Communicator, steppers: int) -> Iterator[Stop]:
    """Within this context let SIGTERM ask all ranks to stop. Every rank of the world enters it, before its first step.

    The first `steppers` ranks of the world take steps. A second SIGTERM ends the rank at once.
    """
    global _stop
    stop = Stop(comm, range(steppers))

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop.asked = True

    if threading.current_thread() is not threading.main_thread():  # only the main thread hears signals
        yield stop
        return
    before, _stop = signal.signal(signal.SIGTERM, asked), stop
    for rank, step in _early:
        stop.hear(rank, step)
    try:
        yield stop
    finally:
        _stop = None
        signal.signal(signal.SIGTERM, before)


def heard(rank: int, step: int) -> None:
    """Hear from a rank that it was told to stop, and in which step it is."""
    if _stop is not None:
        _stop.hear(rank, step)
    else:
        _early.append((rank, step))


def look() -> None:
    """Look whether this rank has been told to stop; called while it waits."""
    if _stop is not None and _stop.asked:
        _stop.look()


line.on("stop", heard)
