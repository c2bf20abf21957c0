"""SIGTERM to the command: somebody wants the machine back, and gives the job some time.

    scheduler  -- SIGTERM -->  python -m minidist.launch  -- SIGTERM -->  every rank: ends its step and saves

mpiexec is not told: it would tell the ranks a second time. Read next: `minidist/comm/stopping.py`, the ranks' side.
"""

import contextlib
import os
import signal
import sys
import time

TO_SAVE = 30.0  # seconds that ranks have: schedulers, too, send SIGKILL after some such time


class Ending:
    """Hand SIGTERM on to the ranks, which may want to save; at the second one end them at once."""

    def __init__(self) -> None:
        self.asked = False
        self.at = float("inf")  # when their time is over
        signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, *_: object) -> None:
        if self.asked:
            sys.exit(143)
        self.asked = True

    def hand_on(self, ranks: dict[int, int], n: int) -> None:
        """Tell the ranks, once, that they shall end. {rank: its process}, of n that will be there."""
        if self.at == float("inf"):
            self.at = time.monotonic() + (TO_SAVE if len(ranks) == n else 0)
            for pid in ranks.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
