"""The curve of accuracy on a run's page (`--report`): after each epoch, the share of test targets that are right.

    step step step ... end of the epoch | evaluate | step step ...

Looking takes time and messages, which are no part of the training: they are left out of its numbers. Where one replica
may be a step ahead of another, or nobody has all weights (ZeRO's stage 3), looking would hold replicas back or fetch
the model once more; there the end is the only point. Read next: `results.py`.
"""

import argparse
import time

import numpy as np

from minidist.comm import PURPOSES
from minidist.data import Dataset
from minidist.sync.zero import Zero
from minidist.trace.record import Recorder
from minidist.train.results import evaluate, sent_so_far
from minidist.train.setup import Setup


class AccuracyCurve:
    """Look after each epoch but the last; every worker has one.

    points: (step, accuracy). sent, seconds, waited: what looking has cost this rank.
    """

    def __init__(
        self, options: argparse.Namespace, dataset: Dataset, setup: Setup, recorder: Recorder | None
    ) -> None:
        self.options, self.dataset, self.setup, self.recorder = options, dataset, setup, recorder
        self.every = -(-len(dataset.train_inputs) // options.batch)
        sync = setup.sync
        whole = not (isinstance(sync, Zero) and sync.stage == 3)
        self.wanted = options.report is not None and sync.lockstep and whole
        self.points: list[tuple[int, float]] = []
        self.sent = np.zeros((len(PURPOSES), 2), np.int64)
        self.seconds = self.waited = 0.0

    def step(self, step: int, last: bool) -> None:
        """Look, if an epoch ends with this step and another comes."""
        if not self.wanted or self.recorder is None or last or step % self.every:
            return
        comm, messages = self.setup.mesh.everyone, self.recorder.messages
        began, waited, sent = time.perf_counter(), comm.progress.seconds, sent_so_far(comm)
        messages.on = False
        self.points.append((step, evaluate(self.setup, self.dataset, self.options)))
        messages.on = True
        self.sent += sent_so_far(comm) - sent
        self.seconds += time.perf_counter() - began
        self.waited += comm.progress.seconds - waited
