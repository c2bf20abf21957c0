"""The losses and norms of a run, as they become known.

A step's loss is a sum over all ranks, and so it is known when the last of them has come so far. Where replicas train in
lockstep it is waited for. Where one may be ahead of another, waiting would hold it back and so change what is trained:
there a loss is written down when it has arrived.
"""

from collections import deque

import numpy as np

from minidist.comm import PURPOSES, Communicator, Request
from minidist.train.report import Progress


class History:
    """Take note of every step.

    losses: of the global batch: the mean over its targets.
    norms: of the gradient that the first replica applied (in lockstep they are all equal).
    progress: what is shown meanwhile.
    accuracies: (step, share of test targets that are right), where it was looked at; written down at the end.
    sent: by this rank in all steps, messages and bytes of each purpose; written down at the end.
    """

    def __init__(self, comm: Communicator, steps: int, shown: bool) -> None:
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.accuracies: list[tuple[int, float]] = []
        self.examples = 0
        self.sent = np.zeros((len(PURPOSES), 2), np.int64)
        self.progress = Progress(comm, steps, shown)
        self._pending: deque[tuple[int, int, Request]] = deque()  # epoch, examples, the loss on its way

    def step(self, epoch: int, examples: int, loss: Request, norm: float, lockstep: bool) -> None:
        """Take note of one step."""
        self.norms.append(norm)
        self._pending.append((epoch, examples, loss))
        while self._pending and (lockstep or self._pending[0][2].test()):
            self._write_down()

    @property
    def steps(self) -> int:
        """How many steps this rank has made."""
        return len(self.norms)

    def finish(self) -> None:
        """Wait for the losses that are still on their way."""
        while self._pending:
            self._write_down()

    def _write_down(self) -> None:
        epoch, examples, request = self._pending.popleft()
        loss = float(request.wait())
        self.losses.append(loss)
        self.examples += examples
        self.progress.step(epoch, len(self.losses), loss, examples)
