"""`--tensorboard DIR`: write a training's numbers while it runs, for `tensorboard --logdir DIR`.

    every step          train/loss
    after each epoch    train/learning_rate, train/seconds, train/bytes_sent_by_rank_0
    at the end          the same, and test/accuracy

Rank 0 alone writes, by tensorboardX, which knows the file's format. A directory has the curves of one training: one
that is resumed goes on where its checkpoint was made, and TensorBoard hides what an interrupted run had written beyond
that; another training wants another directory, so that the two can be compared.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from minidist.comm import Communicator
from minidist.errors import UserError
from minidist.train.history import History
from minidist.train.onlooker import Onlooker, Step
from minidist.train.results import sent_so_far

EVENTS = "events.out.tfevents.*"


def check(options: argparse.Namespace) -> None:
    """Refuse what cannot be written, before anything is trained."""
    if options.tensorboard is None:
        return
    try:
        import tensorboardX  # noqa: F401
    except ImportError:
        raise UserError(
            "--tensorboard needs the package tensorboardX: pip install 'minidist[tensorboard]'"
        ) from None
    path = Path(options.tensorboard)
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".minidist-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"--tensorboard {path}: nothing can be written there ({error.strerror}); name a directory of yours"
        ) from None
    if any(path.glob(EVENTS)) and not (options.resume or "MINIDIST_RESTART" in os.environ):
        raise UserError(
            f"--tensorboard {path} has the curves of a training: name another directory, or go on with --resume"
        )


class Scalars(Onlooker):
    """Write on rank 0 what becomes known. epoch: steps of one."""

    def __init__(self, options: argparse.Namespace, comm: Communicator, epoch: int) -> None:
        super().__init__()
        self.directory, self.lr, self.comm, self.epoch = options.tensorboard, options.lr, comm, epoch
        self.writer: Any = None
        self.written = 0  # steps
        self.began = 0.0

    def begin(self, history: History) -> None:
        """Open the file."""
        from tensorboardX import SummaryWriter

        self.history, begun = history, len(history.losses)
        again = begun + 1 if any(Path(self.directory).glob(EVENTS)) else None
        suffix = f".{os.getpid()}.{begun}"  # two files of one second are two files
        self.writer = SummaryWriter(self.directory, purge_step=again, flush_secs=1, filename_suffix=suffix)
        self.written, self.began = begun, time.perf_counter()

    def step(self, step: Step | None = None) -> None:
        """Write the losses that are known by now."""
        for loss in self.history.losses[self.written :]:
            self.written += 1
            self.writer.add_scalar("train/loss", loss, self.written)
            if self.written % self.epoch == 0:
                self._now_and_then()

    def end(self, accuracy: float) -> None:
        """Write what is known at the end."""
        self.step()
        if self.written % self.epoch:
            self._now_and_then()
        self.writer.add_scalar("test/accuracy", accuracy, self.written)

    def _now_and_then(self) -> None:
        sent = int(sent_so_far(self.comm)[:, 1].sum())
        seconds = time.perf_counter() - self.began
        for name, value in (("learning_rate", self.lr), ("seconds", seconds), ("bytes_sent_by_rank_0", sent)):
            self.writer.add_scalar(f"train/{name}", value, self.written)

    def close(self) -> None:
        """Write what is left, and close the file."""
        if self.writer is not None:
            self.writer.close()
