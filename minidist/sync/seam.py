"""The seam between the two questions: what a replica tells a sync while it computes.

A training step is two lines, whatever the mode:

    loss = replica.forward_backward(batch)      # minidist/split/: one copy of the model makes gradients
    sync.step()                                 # minidist/sync/: the copies combine them and update the weights

Most of what makes distributed training fast happens *between* the two lines, while the replica still computes. So
the replica says, about slices of the parameters, what it is doing:

    weights_needed(parameter)    an operation is about to read these weights, in forward or in backward
    weights_done(parameter)      it has read them
    gradient_ready(bucket)       these gradients will not change any more in this step, and no operation that is
                                 still to come reads the bucket's weights

and a sync does with it what it likes: start an all-reduce (data parallel), fetch a shard and free it (ZeRO stage
3), update and send at once (parameter server), or nothing. `gradient_ready` comes once a step for each bucket, after
the last microbatch's contribution, whatever was shared, accumulated or left unused. The two about weights come from
the tape, and only to those who put themselves into `parameter.watch`.

What a replica divides its summed loss by is the sync's affair too: the number of targets in the whole global batch
where gradients are summed over replicas, and its own where replicas step on their own.

Read next: `data_parallel.py`, the simplest sync that uses the seam.
"""

from collections.abc import Iterator, Sequence

from minidist.checkpoint import Found, State
from minidist.comm import Mesh
from minidist.nn.flat import Bucket, Group
from minidist.optim import Optimizer
from minidist.sync.saved import whole_groups


class Sync:
    """Keep replicas in agreement. A mode is a subclass; what it does not need it leaves as it is here."""

    buckets: Sequence[Bucket] = ()  # the slices that `gradient_ready` speaks of, in the order of launching
    lockstep = True  # whether no replica can be a step ahead of another
    mesh: Mesh
    groups: Sequence[Group]
    optimizer: Optimizer

    @property
    def equal(self) -> bool:
        """Whether all replicas have the same weights between this step and the next."""
        return self.lockstep

    def divisor(self, own: int, whole: int) -> int:
        """Hear how many targets this replica has in the coming step, and all together; say what divides the loss."""
        return whole

    def gradient_ready(self, bucket: Bucket) -> None:
        """Hear that a bucket's gradients are final for this step."""

    def tick(self) -> None:
        """Hear that one more node of the tape is done: the moment to move what is on its way."""

    def step(self) -> float:
        """Combine with the other replicas, update the weights, and return the norm of the gradient applied."""
        raise TypeError(f"{type(self).__name__} does not say how replicas agree: define step()")

    def finish(self) -> None:
        """End the training: from here on all replicas have the same weights, and have them whole."""

    # ---- checkpoints, between two steps

    def before_save(self, step: int) -> None:
        """Hear that all ranks are about to save what they have after this step."""

    def snapshot(self) -> State:
        """Say what the next step depends on: the memory of all vectors, which may be read or filled, and numbers."""
        pieces = list(whole_groups(self.mesh, self.groups, self.optimizer))
        return State(pieces, {"optimizer steps": self.optimizer.steps})

    def restore(self, found: Found) -> None:
        """Go on from a checkpoint. Raises UserError, with nothing changed, if it is damaged or of another model."""
        found.load(self.snapshot())
        self.take_numbers(found.numbers)
        for group in self.groups:
            group.updated()

    def take_numbers(self, numbers: list[dict[str, float]]) -> None:
        """Take over the numbers of a state, or of several where each replica had its own."""
        self.optimizer.steps = int(max(each["optimizer steps"] for each in numbers))


class InOrder:
    """Let buckets out in the order of their indices, whichever of them is ready first.

    Collectives are matched by their order, so every rank has to launch them in the same one.
    """

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self.buckets = buckets
        self._ready: set[int] = set()  # indices of buckets that are final
        self._next = 0  # the bucket whose turn it is

    def ready(self, bucket: Bucket) -> Iterator[Bucket]:
        """Take a bucket that is final, and yield every one whose turn has come."""
        self._ready.add(bucket.index)
        while self._next in self._ready:
            self._next += 1
            yield self.buckets[self._next - 1]

    def restart(self) -> None:
        """Begin the next step."""
        self._ready.clear()
        self._next = 0


def start_equal(mesh: Mesh, groups: Sequence[Group]) -> None:
    """Give all replicas the weights of the first one, however they were built; a collective over the mesh."""
    for group in groups:
        mesh.comm(*group.axes).broadcast(group.weights, root=0, purpose="weights")
        group.updated()
