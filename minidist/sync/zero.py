"""ZeRO: data parallel, but nobody keeps what somebody else keeps already.

    bucket     [ a a a | b b b | c c c ]      rank 0 owns piece a of every bucket, rank 1 piece b, rank 2 piece c
    gradients   reduce-scatter during backward: a rank gets the sum of its own piece alone
    update      a rank updates the piece that it owns; only there are momentum and the like
    weights     stages 1, 2: all-gather after the update     stage 3: fetched when they are read (zero_weights.py)

An all-reduce is a reduce-scatter and an all-gather. Data parallel makes both with gradients, and then all ranks make
the same update. Here the update stands between the two, so each number is updated once in the world. Where a gradient
is still partial over other axes (a tied weight at both ends of a pipeline), the pieces are shared out over those too.

What a rank holds, for p ranks, n bytes of weights and K vectors of optimizer state (b: bytes of the largest bucket):

                      weights     gradients       state      besides, for a while
    data parallel     n           n               K n
    stage 1           n           n               K n/p
    stage 2           n           n/p             K n/p      FLYING b of gradients, and those that are being written
    stage 3           n/p         n/p             K n/p      the same, and b of weights

Measured on 4 ranks with AdamW (K = 2) and n = 8 MB: at most 38 MB in data parallel; 28, 19 and 14 MB in the stages.

In stages 2 and 3 a bucket's gradients take memory at their first contribution and give it back when they are reduced.
With microbatches or accumulation a gradient is final in the last of them only, so that the memory of all of them is
taken meanwhile; to reduce after each one would multiply what is sent.

Cost per step and rank: (p-1)/p n bytes of gradients in p-1 messages a bucket, and in stages 1 and 2 as much of weights:
what data parallel's ring sends. Stage 3 says what it sends in `zero_weights.py`; `plan/zero.py` counts exactly.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, section 5.

    mpiexec -n 4 python -m minidist.train --zero 1
"""

import math
from collections.abc import Sequence

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd import Parameter
from minidist.checkpoint import Found, Piece, State
from minidist.comm import Mesh, Request
from minidist.nn.flat import Bucket, Group, cut_into_buckets, nowhere
from minidist.optim import Optimizer
from minidist.sync import clipping
from minidist.sync.data_parallel import BYTES_PER_BUCKET
from minidist.sync.saved import other_vectors, shard_vectors, slots_of
from minidist.sync.seam import InOrder, Sync, start_equal
from minidist.sync.shard import Shard
from minidist.sync.zero_weights import FetchedWeights

FLYING = 2  # buckets whose gradients are on their way: one is sent while the next one is written


Flight = tuple[Shard, Request]  # whose sum is on its way


class Zero(Sync):
    """Sum gradients in buckets, each rank a piece; update the piece; share the weights.

    mesh, clip_norm: as for DataParallel. optimizer: gives the rule; its state lives here, for the shards alone.
    stage: 1 shares out the optimizer's state, 2 the gradients too, 3 the weights too.
    """

    def __init__(
        self,
        mesh: Mesh,
        groups: Sequence[Group],
        optimizer: Optimizer,
        clip_norm: float | None = None,
        bytes_per_bucket: int = BYTES_PER_BUCKET,
        stage: int = 1,
    ) -> None:
        if stage not in (1, 2, 3):
            raise ValueError(
                f"stage is {stage!r}, expected 1 (optimizer state), 2 (gradients too) or 3 (weights too)"
            )
        self.mesh, self.groups, self.clip_norm, self.stage = mesh, groups, clip_norm, stage
        start_equal(mesh, groups)
        self.buckets = cut_into_buckets(groups, bytes_per_bucket)
        self.shards: list[Shard] = []
        for bucket in self.buckets:
            comm = mesh.comm(*bucket.group.axes)
            self.shards.append(Shard(bucket, comm, sum(shard.comm is comm for shard in self.shards)))
        self.optimizer = optimizer.over(self.shards)
        self._order = InOrder(self.buckets)
        self._flying: list[Flight] = []  # the sums that are on their way
        self._lent: dict[int, np.ndarray] = {}  # by bucket: the memory in which gradients are written
        self._shard_of = {parameter: shard for shard in self.shards for parameter in shard.bucket.parameters}
        if stage >= 2:
            self._free_gradients()
        self.fetched = FetchedWeights(self.shards) if stage == 3 else None

    # ---- gradients

    def _free_gradients(self) -> None:
        """Let gradients have no memory until they are written."""
        for bucket in self.buckets:
            bucket.group.gradients = nowhere(bucket.group.weights.shape, bucket.group.dtype)
            bucket.lend_gradients(None)
            for parameter in bucket.parameters:
                parameter.lender = self._lend

    def _lend(self, parameter: Parameter) -> None:
        """Take memory for the gradients of a parameter's bucket, if that has none yet."""
        bucket = self._shard_of[parameter].bucket
        if bucket.index in self._lent:
            return
        for flight in self._too_many():
            self._land(flight)
        self._lent[bucket.index] = memory = np.empty(bucket.size, bucket.group.dtype)
        bucket.lend_gradients(memory)

    def _too_many(self) -> list[Flight]:
        """Give the sums to wait for before one more may be begun.

        One over other stages of this replica is not for waiting: they may need this rank's backward to end first.
        """
        others = [flight for flight in self._flying if flight[0].bucket.group.axes == ("data",)]
        return others[: max(0, len(others) + 1 - FLYING)]

    def gradient_ready(self, bucket: Bucket) -> None:
        """Launch every bucket that is ready and whose turn it is."""
        for due in self._order.ready(bucket):
            self._launch(self.shards[due.index])

    def _launch(self, shard: Shard) -> None:
        """Start to sum a bucket's gradients: this rank will have its own piece of the sum."""
        bucket = shard.bucket
        if self.stage == 1:
            gradients = bucket.gradients
        else:
            self._lend(bucket.parameters[0])
            for parameter in bucket.parameters:
                parameter.finish()  # zeros, where nothing was contributed
            gradients = self._lent.pop(bucket.index)
            bucket.lend_gradients(None)  # from here on only the reduce-scatter holds the memory
        request = shard.comm.ireduce_scatter(gradients, purpose="gradient")
        self._flying.append((shard, request))

    def _land(self, flight: Flight) -> None:
        """Wait for a sum, and keep it."""
        self._flying.remove(flight)
        shard, request = flight
        summed = request.wait()
        if self.stage == 1:  # the memory is there anyway
            shard.gradients = shard.bucket.gradients[shard.piece]
            shard.gradients[...] = summed
        else:
            shard.gradients = summed

    def tick(self) -> None:
        """Move what is on its way, and give back the memory of what has arrived."""
        self.mesh.everyone.progress.advance()
        for flight in [flight for flight in self._flying if flight[1].done]:
            self._land(flight)

    # ---- weights

    def step(self) -> float:
        """Wait for the summed gradients, clip, update this rank's shards, share them; return the norm."""
        for flight in list(self._flying):
            self._land(flight)
        self._order.restart()
        if self.fetched is not None:
            self.fetched.close()  # others may still have been reading these weights
        if self.clip_norm is None:  # the update reads all gradients anyway, and sums their squares on the way
            norm = self._norm(self.optimizer.step())
        else:
            norm = self._norm([kernels.sum_of_squares(shard.gradients) for shard in self.shards])
            self.optimizer.step(clipping.clip_scale(norm, self.clip_norm))
        for shard in self.shards:
            shard.gradients = None
        if self.fetched is not None:
            self.fetched.open()
        else:
            self._gather([shard.bucket.weights for shard in self.shards])
        for group in self.groups:
            if group.trainable:
                group.updated()
        return norm

    def _gather(self, memory: Sequence[np.ndarray]) -> None:
        """Fill each bucket's memory with all ranks' shards."""
        requests = [
            shard.comm.iall_gather(shard.weights, out=whole, purpose="weights")
            for shard, whole in zip(self.shards, memory, strict=True)
        ]
        for request in requests:
            request.wait()

    def _norm(self, squares: Sequence[float]) -> float:
        """Give the norm of the model's gradient from the sums of squares of this rank's shards.

        Of a group that other ranks of the replica have too (and not to share it out with them), the first one counts.
        """
        counted = 0.0
        for shard, square in zip(self.shards, squares, strict=True):
            group = shard.bucket.group
            if clipping.counted_here(self.mesh, group, group.axes):
                counted += square
        total = self.mesh.everyone.all_reduce(np.array(counted, np.float64), purpose="control")
        return math.sqrt(total)

    def snapshot(self) -> State:
        """Say what the next step depends on: of what is shared out, each rank has its own pieces."""
        pieces: list[Piece] = []
        for group in self.groups:
            if self.stage < 3 or not group.trainable:
                pieces += other_vectors(self.mesh, group, {"weights": group.weights})
        for number, shard in enumerate(self.shards):
            vectors = slots_of(self.optimizer, number)
            if self.stage == 3:
                vectors["weights"] = shard.weights
            pieces += shard_vectors(self.mesh, shard, vectors)
        return State(pieces, {"optimizer steps": self.optimizer.steps})

    def restore(self, found: Found) -> None:
        """Go on from a checkpoint."""
        super().restore(found)
        if self.fetched is not None:
            self.fetched.forget()

    def finish(self) -> None:
        """Give every rank all weights of its part of the model, to evaluate or to keep it; training may go on."""
        if self.fetched is None or self.fetched.whole:
            return
        self.fetched.close()
        memory = {
            id(bucket.group): np.empty(bucket.group.weights.shape, bucket.group.dtype)
            for bucket in self.buckets
        }
        self._gather([memory[id(bucket.group)][bucket.region] for bucket in self.buckets])
        for bucket in self.buckets:
            bucket.group.weights = memory[id(bucket.group)]
            bucket.lend_weights(bucket.weights)
        self.fetched.whole = True
