"""`--ranks`: show how each rank spends its time while the training runs, and say if one is slower than the others.

    rank 0  ██████████████████████▒▒▒▒░░░░   compute  74 %   communication 13 %   idle 13 %
    rank 1  ████████████████████████████▒▒   compute  93 %   communication  6 %   idle  1 %

Every rank adds up its own time (minidist/trace/shares.py). What it has found travels rarely: after the last step of an
epoch, and about twice a second, in one all-gather of five numbers. All ranks must come to it after the same step, so
when the next one will be follows from numbers that all of them have: what rank 0's steps took so far. Where one rank
may be ahead of another, nobody waits: the numbers are sent at epochs' ends, and shown when they have arrived.

On a terminal the launcher draws the bars (minidist/launch/terminal.py); elsewhere it is one line an epoch. What is sent
is counted under "guard", which `--explain` leaves out. Read next: `straggler.py`.
"""

from __future__ import annotations

import os
import sys
from collections import deque

import numpy as np

from minidist.comm import Mesh, Request
from minidist.trace.shares import Shares
from minidist.train.history import History
from minidist.train.onlooker import Onlooker, Step
from minidist.train.report import Progress, say
from minidist.train.straggler import Stragglers

SECONDS = 0.5  # between two exchanges, about


class Ranks(Onlooker):
    """Follow one worker's time, and on rank 0 show everybody's.

    lockstep: whether all workers make the same step at the same time. epoch: steps of one.
    """

    progress: Progress  # what is shown

    def __init__(self, mesh: Mesh, lockstep: bool, shares: Shares, epoch: int) -> None:
        super().__init__()
        self.comm, self.lockstep, self.shares, self.epoch = mesh.everyone, lockstep, shares, epoch
        self.stragglers = Stragglers(alike(mesh))
        self.left = 1  # steps to the next exchange
        self.steps: list[float] = []  # seconds that this rank computed in each step since the last one
        self.sums = np.zeros((self.comm.size, 3))  # of this epoch
        self.pending: deque[tuple[int, bool, int, Request]] = deque()

    def begin(self, history: History) -> None:
        """Begin to count."""
        self.progress = history.progress
        self.told = np.array(self.shares.read())  # up to the last exchange
        self.before = self.told[0]  # up to the last step

    def step(self, step: Step) -> None:
        """Take note of a step; exchange and show what is known, if it is time."""
        now = np.array(self.shares.read())
        self.steps.append(now[0] - self.before)
        self.left -= 1
        ends = step.number % self.epoch == 0 or step.last
        if ends or (self.lockstep and self.left <= 0):
            row = np.array([[*(now - self.told), min(self.steps)]])
            request = self.comm.iall_gather(row, purpose="guard")
            self.pending.append(((step.number - 1) // self.epoch + 1, ends, len(self.steps), request))
            self.told, self.steps = now, []
        while self.pending and (self.lockstep or step.last or self.pending[0][3].test()):
            self._arrived(*self.pending.popleft())
        self.before = self.shares.read()[0]  # what was done here is no part of a step

    def _arrived(self, epoch: int, ends: bool, steps: int, request: Request) -> None:
        table = request.wait()  # (ranks, 4): seconds computing, communicating, idle; in the fastest step
        took = max(table[0, :3].sum() / steps, 1e-9)
        # The first steps are slower than the others, so the way to longer stretches is a short one.
        self.left = max(1, min(round(SECONDS / took), 10 * steps))
        if self.comm.rank:
            return
        self.sums += table[:, :3]
        if found := self.stragglers.look(table[:, 3], steps, table[0, :3].sum()):
            print(found, file=sys.stderr, flush=True)
        if "MINIDIST_PROGRESS" in os.environ:
            self.progress.ranks = shares_of(table[:, :3])
        elif ends:
            say(f"ranks  epoch {epoch}: {spoken(shares_of(self.sums))}")
        if ends:
            self.sums[:] = 0


def shares_of(seconds: np.ndarray) -> list[list[float]]:
    """Give each rank's shares of its time, from seconds of shape (ranks, 3)."""
    return (seconds / seconds.sum(axis=1, keepdims=True)).round(3).tolist()


def spoken(shares: list[list[float]]) -> str:
    """Say it in a line."""
    ranks = [
        f"rank {rank} computes {compute:.0%}, communicates {communicate:.0%}, idle {idle:.0%}"
        for rank, (compute, communicate, idle) in enumerate(shares)
    ]
    return "; ".join(ranks)


def alike(mesh: Mesh) -> list[int]:
    """Give for each rank the stage of the pipeline that it holds: ranks of one stage have equal work."""
    axes = list(mesh.axes)
    if "pipe" not in axes:
        return [0] * mesh.everyone.size
    places = np.unravel_index(np.arange(mesh.everyone.size), list(mesh.axes.values()))
    return places[axes.index("pipe")].tolist()
