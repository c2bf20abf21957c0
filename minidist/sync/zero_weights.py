"""ZeRO's stage 3: a rank holds its shards of the weights, and fetches a bucket when it is about to be read.

    forward      bucket 2      bucket 1      bucket 0         one bucket is here at a time
    backward     bucket 0      bucket 1      bucket 2         bucket 0 is still here from forward

Before an operation reads weights, in forward or in backward, the tape says so (`Parameter.watch`). If the bucket is
not here, the one that is goes, and the missing pieces are fetched from the ranks that own them. A bucket stays until
another one is read: so it is fetched once for all the layers in it, not twice where forward turns into backward, and
not at all between microbatches if it was the last to be read. Nothing is kept for the next step: the weights change.

An operation that has been given an array keeps it as long as it needs it; what goes is only the name. So it does not
matter to the result when a bucket goes, and `weights_done` has nothing to do.

Ranks fetch alone and not together (`comm/shelf.py`), since they may read differently: a replica without examples reads
nothing, another one has a microbatch more, a branch is used here and not there.

Cost for p ranks, m microbatches (or pieces of accumulation) and B buckets of b bytes that forward and backward read in
turn: m (2B - 2) + 1 fetches a step, and each sends (p-1)/p b bytes in p-1 messages, and p-1 questions of 8 bytes. For
one microbatch that is, with the gradients, half as much again as data parallel sends; for m microbatches the part for
weights comes m times. Fewer are fetched where backward needs no weights (an embedding, the first layer of an mlp), one
more for each forward that comes behind a forward, as at the start of 1F1B; and a pipeline's stage that is one bucket
keeps its weights for the whole step. Memory: one bucket. Buckets are not fetched before they are needed.

Rajbhandari et al. 2020, section 5.3. Read next: `minidist/plan/zero.py`, which counts all this.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidist.autograd import Parameter
from minidist.comm.shelf import Shelf
from minidist.nn.flat import nowhere
from minidist.sync.shard import Shard


class FetchedWeights:
    """Keep this rank's shards for all, and one bucket of weights at a time for this rank's operations.

    whole: whether all weights are here, as they are between `Zero.finish` and the next step.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = shards
        self.here: Shard | None = None  # the bucket that was read last
        self.fetches = 0  # so far
        self.whole = False
        self._shard_of = {parameter: shard for shard in shards for parameter in shard.bucket.parameters}
        self._shelves = {id(shard.comm): Shelf(shard.comm, "weights") for shard in shards}
        for shard in shards:
            shard.weights = shard.weights.copy()  # the vectors that they were views of go
            for parameter in shard.bucket.parameters:
                parameter.watch = self
        self.open()

    def open(self) -> None:
        """Let everything go but the shards, and let the other ranks fetch these."""
        for shard in self.shards:
            shard.bucket.group.weights = nowhere(shard.bucket.group.weights.shape, shard.bucket.group.dtype)
            shard.bucket.lend_weights(None)
        self.here, self.whole = None, False
        for key, shelf in self._shelves.items():
            shelf.open([shard.weights for shard in self.shards if id(shard.comm) == key])

    def close(self) -> None:
        """Wait until no rank will fetch any more of what is here now."""
        if self.whole:
            return
        said = [shelf.say_no_more() for shelf in self._shelves.values()]  # to all before waiting for any
        for request in said:
            request.wait()
        for shelf in self._shelves.values():
            shelf.close()

    def weights_needed(self, parameter: Parameter) -> None:
        """See that the bucket of these weights is here."""
        shard = self._shard_of[parameter]
        if shard is self.here or self.whole:
            return
        if self.here is not None:
            self.here.bucket.lend_weights(None)
        self.here = shard
        self.fetches += 1
        memory = np.empty(shard.bucket.size, shard.weights.dtype)
        memory[shard.piece] = shard.weights
        self._shelves[id(shard.comm)].fetch(shard.number, [memory[piece] for piece in shard.pieces]).wait()
        shard.bucket.lend_weights(memory)

    def forget(self) -> None:
        """Let go of all weights that were fetched: the shards were changed. No rank may be fetching meanwhile."""
        if self.whole:
            self.open()
        elif self.here is not None:
            self.here.bucket.lend_weights(None)
            self.here = None

    def weights_done(self, parameter: Parameter) -> None:
        """Leave the weights here: the next operation probably reads the same bucket."""
