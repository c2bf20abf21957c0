"""The curve of accuracy of `--report` and `--plot`: after each epoch, the share of test targets that are right.

    step step step ... end of the epoch | evaluate | step step ...

Looking takes time and messages, which are no part of the training: they are left out of its numbers. Where one replica
may be a step ahead of another, or nobody has all weights (ZeRO's stage 3), looking would hold replicas back or fetch
the model once more; there the end is the only point. Read next: `results.py`.
"""

import argparse
import time

from minidist.data import Dataset
from minidist.sync.zero import Zero
from minidist.trace.record import Recorder
from minidist.train.history import History
from minidist.train.onlooker import Onlooker, Step
from minidist.train.results import evaluate, sent_so_far
from minidist.train.setup import Setup


class AccuracyCurve(Onlooker):
    """Look after each epoch but the last, and note (step, accuracy) in the history; every worker has one."""

    def __init__(
        self, options: argparse.Namespace, dataset: Dataset, setup: Setup, recorder: Recorder
    ) -> None:
        super().__init__()
        self.options, self.dataset, self.setup, self.recorder = options, dataset, setup, recorder
        self.every = -(-len(dataset.train_inputs) // options.batch)
        sync = setup.sync
        whole = not (isinstance(sync, Zero) and sync.stage == 3)
        self.can_look = sync.lockstep and whole

    def begin(self, history: History) -> None:
        """Take note of where to note it."""
        self.points = history.accuracies

    def step(self, step: Step) -> None:
        """Look, if an epoch ends with this step and another comes."""
        if not self.can_look or step.last or step.number % self.every:
            return
        comm, messages = self.setup.mesh.everyone, self.recorder.messages
        began, waited, sent = time.perf_counter(), comm.progress.seconds, sent_so_far(comm)
        messages.on = False
        self.points.append((step.number, evaluate(self.setup, self.dataset, self.options)))
        messages.on = True
        self.sent += sent_so_far(comm) - sent
        self.seconds += time.perf_counter() - began
        self.waited += comm.progress.seconds - waited
