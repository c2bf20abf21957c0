"""Who looks on while a model trains: `--check-every`, `--ranks`, `--tensorboard`, the accuracy curve of `--report`.

None of them has a part in the training: take them all away, and it makes the same weights. Each is told of a step
after it, and says what its own looking has cost, which the training's numbers leave out. Read next: `loop.py`, which
tells them.
"""

from dataclasses import dataclass

import numpy as np

from minidist.comm import PURPOSES
from minidist.train.history import History


@dataclass(frozen=True)
class Step:
    """A step that has been made: its number from 1, this replica's rows, and how many examples all replicas had."""

    number: int
    epoch: int
    rows: np.ndarray
    count: int
    last: bool


class Onlooker:
    """Look on. sent, seconds, waited: what looking has cost this rank: messages and bytes of each purpose, and time."""

    def __init__(self) -> None:
        self.sent = np.zeros((len(PURPOSES), 2), np.int64)
        self.seconds = self.waited = 0.0

    def begin(self, history: History) -> None:
        """Take note of where it begins: `history` has what was made before, and will have what is made."""

    def step(self, step: Step) -> None:
        """Take note of a step; called on all workers alike."""

    def finish(self) -> None:
        """Take note of the end."""
