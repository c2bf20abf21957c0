"""A shard: what one rank owns of one bucket, where ranks share out what data parallel keeps on all of them.

    group's vectors   [ ........ | bucket: a a a b b b c c c | ........ ]      rank 1's piece is b, of the bucket;
                                          |     |                              its region is b, of the vectors
Read next: `zero.py`, which shares out optimizer state, gradients and weights in this way.
"""

import numpy as np

from minidist.comm import Communicator
from minidist.comm.arrays import cut
from minidist.nn.flat import Bucket


class Shard:
    """This rank's piece of one bucket: what the optimizer updates here.

    number: tells the bucket apart from the others of the same communicator, on all of its ranks alike.
    """

    trainable = True

    def __init__(self, bucket: Bucket, comm: Communicator, number: int) -> None:
        self.bucket, self.comm, self.number = bucket, comm, number
        self.pieces = cut(bucket.size, comm.size)  # as equal as can be
        self.piece = self.pieces[comm.rank]
        self.weights = bucket.weights[self.piece]
        self.gradients: np.ndarray | None = None  # after the reduce-scatter

    @property
    def region(self) -> slice:
        """Where the piece is in the vectors of the bucket's group."""
        start = self.bucket.region.start
        return slice(start + self.piece.start, start + self.piece.stop)

    def updated(self) -> None:
        """Nothing to do: the groups are told when all ranks' shards are updated."""
