"""How a rank spends its time, in three sums: computing, communicating, idle. Cheap enough to go on all the time.

    | compute ...... | start |  compute  | advance | wait: moving | idle ........ | moving |
                       communication       communication            idle            communication

`Shares` takes the place of three functions of the rank's `comm.progress.Progress` and adds up the clock around them.
Idle is what the transport calls while nothing moves (`Operations` in `operations.py` sees the same, and writes down
each time). What is neither is computing, and all the rest of Python. Read next: `minidist/train/ranks.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from minidist.comm.progress import Progress, Request


class Shares:
    """Add up the time of one rank from now on."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.perf_counter) -> None:
        self.progress, self.clock = progress, clock
        self.idle_seconds = 0.0
        self._moving = 0.0  # seconds in which something was started or moved, outside any wait
        self._looked = 0.0  # when it was last seen that nothing moved
        self._inner = progress.start, progress.advance, progress.idle
        for name in ("start", "advance", "idle"):
            setattr(progress, name, getattr(self, name))
        self._began, self._waited = clock(), progress.seconds

    def read(self) -> tuple[float, float, float]:
        """Give the seconds since this was made: (computing, communicating, idle)."""
        talking = self.progress.seconds - self._waited + self._moving
        return self.clock() - self._began - talking, talking - self.idle_seconds, self.idle_seconds

    def start(self, request: Request) -> Request:
        """Start an operation."""
        if self.progress.waiting_thread is not None:  # that time is the wait's
            return self._inner[0](request)
        began = self.clock()
        started = self._inner[0](request)
        self._moving += self.clock() - began
        return started

    def advance(self) -> bool:
        """Move what is in flight; backward does that once for each node of the tape."""
        if not self.progress.running or self.progress.waiting_thread is not None:
            return self._inner[1]()
        began = self.clock()
        moved = self._inner[1]()
        self._moving += self.clock() - began
        return moved

    def idle(self, progress: Progress, request: Request, since: float) -> None:
        """Let time pass; nothing has moved since `since`."""
        self._inner[2](progress, request, since)
        now = self.clock()
        self.idle_seconds += now - max(self._looked, since)
        self._looked = now
