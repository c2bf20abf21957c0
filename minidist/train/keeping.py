"""What a training keeps: checkpoints every so many steps, from which it goes on if it was interrupted.

    --checkpoint runs/a               at the end of each epoch, and of the training
    --checkpoint runs/a --every 50    after steps 50, 100, ..., and at the end
    --checkpoint runs/a --resume      begin with the newest one there

A run that is resumed computes what it would have computed without the interruption: to the last bit on the same mesh,
to rounding on another one. So all that decides about the numbers must be as it was (`FIXED`, and the data), and is
compared; ranks, mesh, schedule, length and what is printed may be others.
Read next: `minidist/checkpoint/`.
"""

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from minidist import checkpoint
from minidist.comm import PURPOSES, Communicator
from minidist.comm.stopping import Stop
from minidist.data import Dataset
from minidist.errors import UserError
from minidist.plan.traffic import barrier
from minidist.sync.seam import Sync
from minidist.sync.server import Server
from minidist.train.arrangement import Arrangement
from minidist.train.history import History
from minidist.train.report import say
from minidist.train.results import sent_so_far

FIXED = (
    "model", "data", "seed", "batch", "optimizer", "lr", "momentum", "weight_decay", "clip_norm", "dtype",
    "hidden", "layers", "width", "heads",
)  # fmt: skip
AVERAGING = (
    "average_every",
    "average_growth",
    "average_state",
    "warm_up",
    "outer",
    "outer_lr",
    "outer_momentum",
)


class Keeping:
    """Keep the checkpoints of one run, or none if no directory is named. Every rank has one, servers too.

    begun: steps that were done before this run began. losses, norms: of these.
    sent: messages and bytes of each purpose that saving has cost this rank.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        arrangement: Arrangement,
        dataset: Dataset,
        comm: Communicator,
        kernels: str,
        stop: Stop | None = None,
    ) -> None:
        self.comm, self.quiet = comm, options.quiet
        self.restart = os.environ.get("MINIDIST_RESTART")  # a job that has failed is started again
        self.resuming = options.resume or self.restart is not None
        self.every = options.every or -(-len(dataset.train_inputs) // options.batch)
        self.facts = facts(options, arrangement, dataset, kernels)
        self.begun = 0
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.sent = np.zeros((len(PURPOSES), 2), np.int64)
        self.stop = stop
        self.directory: checkpoint.Directory | None = None
        self._sync: Sync | Server | None = None
        self._history: History | None = None
        if options.checkpoint is not None and not options.explain:
            self.directory = checkpoint.Directory(comm, options.checkpoint)
            if self.directory.newest is not None and not self.resuming:
                self.close()
                raise UserError(
                    f"{options.checkpoint} has a checkpoint of step {self.directory.newest}: go on from it with "
                    "--resume, or name another directory"
                )

    def close(self) -> None:
        """Let others write to the directory."""
        if self.directory is not None:
            self.directory.close()

    def resume(self, sync: Sync | Server) -> None:
        """Take up the newest checkpoint, if that was asked for; from now on `save` saves this sync. A collective."""
        self._sync = sync
        if self.directory is None or not self.resuming:
            return
        if self.directory.newest is None and self.restart is not None:
            if self.comm.rank == 0 and not self.quiet:
                say("no checkpoint yet: begun again")
            return
        found = self.directory.find()
        refuse_another_training(found, self.facts)
        losses, norms = found.extra("losses"), found.extra("norms")
        sync.restore(found)
        self.begun, self.losses, self.norms = found.step, losses.tolist(), norms.tolist()
        if self.comm.rank == 0 and not self.quiet:
            say(f"resumed from {found.path}")
            if (then := found.facts["kernels"]) != self.facts["kernels"]:
                say(f"note   step {found.step} was made by {then} kernels: these here round differently")

    def record(self, history: History) -> None:
        """Save this history, too; it begins with what was done before."""
        self._history = history
        history.losses[:], history.norms[:] = self.losses, self.norms

    def after(self, step: int, steps: int) -> bool:
        """Save if it is time: every so many steps, and after the last one; say whether this is the last one.

        It may be because of a SIGTERM, after the same step on all workers.
        """
        last = step == steps or (self.stop is not None and self.stop.after(step))
        if self.directory is not None and (step % self.every == 0 or last):
            self.save(step)
        return last

    @property
    def stopped(self) -> bool:
        """Whether a SIGTERM has stopped this worker before the end."""
        return self.stop is not None and self.stop.last is not None

    def say_stopped(self) -> None:
        """Say after which step that was, and how to go on from there."""
        if self.comm.rank or self.stop is None:
            return
        how = "nothing was saved: give --checkpoint DIR to go on from there next time"
        if self.directory is not None and self.directory.newest == self.stop.last:
            mpi = f"mpiexec -n {self.comm.size} " if self.comm.size > 1 else ""
            words = shlex.join(word for word in sys.argv[1:] if word != "--resume")
            how = (
                f"saved in {self.directory.path}; go on with: {mpi}python -m minidist.train {words} --resume"
            )
        print(f"stopped after step {self.stop.last} by SIGTERM; {how}", file=sys.stderr, flush=True)

    def save(self, step: int) -> bool:
        """Save what all ranks have after this step; say in one sentence if that fails, and let the training go on.

        A collective: every worker calls it after the same step, and the servers are asked to.
        """
        if self.directory is None:
            return False
        extras = {}
        if self._history is not None:
            self._history.finish()  # losses that are still on their way belong to the steps
            extras = {"losses": np.array(self._history.losses), "norms": np.array(self._history.norms)}
        assert self._sync is not None, "resume() comes first"
        if isinstance(self._sync, Sync):
            with self._counted():
                self._sync.before_save(step)
        self._meet()  # a rank that is still in its step may want something of this one, which is not saving's affair
        saved = True
        try:
            with self._counted():
                state = self._sync.snapshot()
                self._refuse_not_finite(step, state)
                self.directory.save(step, state, self.facts, extras)
        except UserError as error:  # on all ranks; what one rank alone raises ends the job
            saved = False
            if self.comm.rank == 0:
                print(f"{error}; the training goes on", file=sys.stderr, flush=True)
        self._meet()  # as little as what another rank wants in its next step
        return saved

    def _refuse_not_finite(self, step: int, state: checkpoint.State) -> None:
        """Raise on all ranks rather than replace a good checkpoint by weights that an update has made inf or nan."""
        bad = [piece.name for piece in state.pieces if not np.isfinite(piece.array).all()]
        if self.comm.all_reduce(np.array(len(bad)), purpose="control"):
            what = bad[0] if bad else "what another rank holds"
            raise UserError(f"step {step} is not saved, for {what} is not finite")

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count what is sent meanwhile as sent by saving."""
        before = sent_so_far(self.comm)
        try:
            yield
        finally:
            self.sent += sent_so_far(self.comm) - before

    def _meet(self) -> None:
        self.comm.barrier(purpose="control")
        cost = barrier(self.comm.size)
        self.sent[PURPOSES.index("control")] += np.array([cost.messages, cost.bytes])


def facts(
    options: argparse.Namespace, arrangement: Arrangement, dataset: Dataset, kernels: str
) -> dict[str, Any]:
    """Describe a run in plain data: what must be the same when it goes on, and what is good to know."""
    names = FIXED + (AVERAGING if arrangement.sync == "averaging" else ())
    rule = arrangement.sync
    if (rule == "parameter-server" and options.slack == 0) or rule == "data":
        rule = "pipedream" if options.schedule == "pipedream" else "sum of gradients"
    elif rule == "parameter-server":
        rule = f"parameter server with --slack {options.slack}"
    return {
        "mesh": arrangement.axes,
        "servers": arrangement.servers,
        "kernels": kernels,
        "rule": rule,
        "data_sha256": dataset.sha256,
        "options": {name: getattr(options, name) for name in names},
    }


def refuse_another_training(found: checkpoint.Found, now: dict[str, Any]) -> None:
    """Raise UserError if what was begun is not what goes on now, by name and with both values."""
    then = found.facts
    differing = []
    if then["rule"] != now["rule"]:
        differing.append(f"by {then['rule']}, not by {now['rule']}")
    for name in now["options"]:
        if name in then["options"] and then["options"][name] != now["options"][name]:
            was, is_ = (_typed(facts["options"][name]) for facts in (then, now))
            differing.append(f"with --{name.replace('_', '-')} {was}, not {is_}")
    if not differing and then["data_sha256"] != now["data_sha256"]:
        differing.append(f"on data of sha256 {then['data_sha256'][:12]}, not {now['data_sha256'][:12]}")
    if differing:
        raise UserError(
            f"{found.path} was trained {' and '.join(differing)}: go on as it was begun, or begin in another directory"
        )


def _typed(value: Any) -> str:
    """Write a value as one types it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
