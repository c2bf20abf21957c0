"""Model averaging: every replica steps on its own, and every k steps their weights are averaged.

    rank 0   step step step step | average | step step step step | average |      k = 4: one message
    rank 1   step step step step |    w    | step step step step |    w    |      where data parallel has four

What counts in an average is how many targets (examples, or tokens) each replica has learnt from since the last one
(McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
algorithm 1; Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019). A replica without examples takes
no step, and joins the average with weight 0. Each divides its loss by its *own* count, and clips by the norm of its
own gradient: so with k = 1 this is data parallel for plain SGD without clipping (and with momentum, while a replica's
share of the batch stays the same), and a method of its own otherwise.

Replicas drift apart most where training is young. So `warm_up` steps of plain data parallel may come first (post-local
SGD: Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020), and `growth` makes every gap that many times
as long as the one before (Haddadpour et al., "Local SGD with Periodic Averaging", NeurIPS 2019).

DiLoCo (Douillard et al. 2023, algorithm 1) takes the averaged *change* for a gradient: `outer=OuterNesterov(0.7)` makes
a Nesterov step along it from where all replicas started.

Cost for p ranks and n bytes of weights: one all-reduce, 2 (p-1)/p n bytes sent by each rank, every k steps (with
state="average" of the optimizer's vectors too). Memory: as data parallel; with `outer` 2n more.

    mpiexec -n 4 python -m minidist.train --mode averaging

Read next: `parameter_server.py`, where replicas step on their own and meet at a server.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

from minidist.checkpoint import State
from minidist.comm import Mesh
from minidist.comm.arrays import cut
from minidist.errors import UserError
from minidist.nn.flat import Group
from minidist.optim import Optimizer
from minidist.sync import clipping, partial
from minidist.sync.outer import OuterNesterov
from minidist.sync.saved import other_vectors, whole_groups
from minidist.sync.seam import Sync, start_equal

__all__ = ["ModelAveraging", "OuterNesterov"]

STATES = ("keep", "average", "reset")


def gaps(every: int, growth: float) -> Iterator[int]:
    """Yield after how many further steps each average comes, without end: 2, 3, 4, 6, 10 for every=2, growth=1.5."""
    if growth == 1:
        yield from repeat(every)
    gap = float(every)
    while True:
        yield int(gap)
        gap *= growth


class ModelAveraging(Sync):
    """Let every replica step on its own, and average the weights now and then.

    every: steps between two averages; growth: each such gap is this many times as long as the one before.
    warm_up: so many steps of plain data parallel come first.
    state: what becomes of the optimizer's state at an average. "keep": each replica keeps its own, which costs nothing;
        "average": it is averaged like the weights, as one vector more for each slot; "reset": it starts from zero.
    outer: what is done with the average; None: it becomes the weights.
    """

    lockstep = False  # between two averages nobody waits for anybody

    def __init__(
        self,
        mesh: Mesh,
        groups: Sequence[Group],
        optimizer: Optimizer,
        clip_norm: float | None = None,
        every: int = 1,
        warm_up: int = 0,
        growth: float = 1.0,
        state: str = "keep",
        outer: OuterNesterov | None = None,
    ) -> None:
        check(every, warm_up, growth, state)
        self.mesh, self.groups, self.optimizer, self.clip_norm = mesh, groups, optimizer, clip_norm
        self.state, self.outer = state, outer
        self.trained = [group for group in groups if group.trainable]
        self._warm_up = warm_up  # steps of data parallel that are still to come
        self._gaps = gaps(every, growth)
        self._left = next(self._gaps)  # steps until the next average
        self._averages = 0  # so far
        self._own: int | None = None  # targets of this replica in the coming step, if it was told
        self._steps = self._targets = 0  # since replicas were last equal
        start_equal(mesh, groups)

    @property
    def equal(self) -> bool:
        """Whether the last step ended with an average, or nobody has moved since."""
        return not self._steps

    def divisor(self, own: int, whole: int) -> int:
        """Divide by the replica's own count, for it steps on its own; while warming up, by that of all replicas."""
        self._own = own
        return whole if self._warm_up else max(own, 1)

    def step(self) -> float:
        """Update this replica, and average if it is time; return the norm of its own gradient before clipping."""
        own, self._own = self._own, None
        if own is None:
            raise ValueError(
                "nobody said how many targets this step has: batch.count is sync.divisor(own, whole), before each step"
            )
        if self._warm_up:
            return self._step_together()
        if self.outer is not None and not self._steps:
            self.outer.start(self.trained)
        partial.complete(self.mesh, self.groups)
        if own:
            norm = clipping.update(self.mesh, self.groups, self.optimizer, self.clip_norm)
        else:  # 0, found by the same messages
            norm = clipping.norm(self.mesh, self.groups)
        if not math.isfinite(norm):
            return norm  # it must not reach the others: whoever trains stops here
        self._steps += 1
        self._targets += own
        self._left -= 1
        if not self._left:
            self._left = next(self._gaps)
            self._averages += 1
            self.average()
        return norm

    def _step_together(self) -> float:
        """Take one step of plain data parallel."""
        self._warm_up -= 1
        for group in self.trained:
            comm = self.mesh.comm(*group.axes)
            comm.all_reduce(group.gradients, out=group.gradients, purpose="gradient")
        return clipping.update(self.mesh, self.groups, self.optimizer, self.clip_norm)

    def average(self) -> None:
        """Make all replicas equal: to the mean of their weights, counted by the targets each has learnt from."""
        # Copies within a replica are equal, so every rank averages with those in its own place in the other replicas.
        replicas = self.mesh.comm("data")
        mine = np.array([[self._targets, self.optimizer.steps]])
        targets, steps = replicas.all_gather(mine, purpose="control").T  # (replicas,) each
        self._steps = self._targets = 0
        if targets.any():  # else nobody has moved
            # In the smallest whole numbers, and divided last: shares like 1/3 add up to 1 only nearly, and training
            # averages thousands of times.
            counts = targets // np.gcd.reduce(targets)
            vectors = [group.weights for group in self.trained]
            if self.state == "average":
                vectors += [vector for slot in self.optimizer.state.values() for vector in slot]
                self.optimizer.steps = int(steps.max())
            for vector in vectors:
                vector *= int(counts[replicas.rank])
            requests = [replicas.iall_reduce(vector, out=vector, purpose="weights") for vector in vectors]
            for vector, request in zip(vectors, requests, strict=True):
                request.wait()
                vector /= int(counts.sum())
            if self.outer is not None:
                self.outer.step(self.trained)
            for group in self.trained:
                group.updated()
        if self.state == "reset" and self.optimizer.steps:
            self.optimizer.steps = 0
            for vector in (vector for slot in self.optimizer.state.values() for vector in slot):
                vector[...] = 0

    def snapshot(self) -> State:
        """Say what the next step depends on; between two averages every replica has a state of its own."""
        pieces = list(whole_groups(self.mesh, self.groups, self.optimizer, alike=False))
        if self.outer is not None:
            for group, vectors in zip(self.trained, self.outer.state(self.trained), strict=True):
                pieces += other_vectors(self.mesh, group, vectors, alike=False)
        numbers = {
            "optimizer steps": self.optimizer.steps,
            "warm-up": self._warm_up,
            "averages": self._averages,
            "left": self._left,
            "steps": self._steps,
            "targets": self._targets,
        }
        return State(pieces, numbers, self.mesh.coordinates["data"], self.mesh.size("data"))

    def take_numbers(self, numbers: list[dict[str, float]]) -> None:
        """Take over the numbers of this replica; where there were more or fewer, what they had learnt is shared out."""
        replica, replicas = self.mesh.coordinates["data"], self.mesh.size("data")
        first = numbers[0]  # replicas differ only in how often they had examples, and how many
        self._warm_up, self._left = int(first["warm-up"]), int(first["left"])
        self._steps = int(first["steps"])
        while self._averages < first["averages"]:
            next(self._gaps)
            self._averages += 1
        if len(numbers) == replicas:
            self._targets = int(numbers[replica]["targets"])
            self.optimizer.steps = int(numbers[replica]["optimizer steps"])
        else:
            shares = cut(sum(int(each["targets"]) for each in numbers), replicas)
            self._targets = shares[replica].stop - shares[replica].start
            super().take_numbers(numbers)

    def finish(self) -> None:
        """Average what the last steps have done, unless that was just done."""
        if self._steps:
            self.average()


def check(every: int, warm_up: int, growth: float, state: str) -> None:
    """Refuse a plan of averages that makes no sense."""
    if every < 1:
        raise UserError(
            f"averages every {every} steps cannot be made; 1 is every step, and 8 is a good start"
        )
    if warm_up < 0:
        raise UserError(f"a warm-up of {warm_up} steps cannot be made; 0 is none")
    if not (math.isfinite(growth) and growth >= 1):
        raise UserError(f"gaps that grow by {growth} would vanish; give 1 to keep them, or more, as 1.5")
    if state not in STATES:
        raise UserError(f"the optimizer's state cannot be {state!r}; expected one of {', '.join(STATES)}")
