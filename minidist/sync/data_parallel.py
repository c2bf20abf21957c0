"""Data parallel: every replica sees a part of the batch, and their gradients are summed in every step.

    rank 0   forward | backward: bucket 0, bucket 1, bucket 2 | wait | update
    rank 1   forward | backward: bucket 0, bucket 1, bucket 2 | wait | update
                                     \\         \\         \\
                                      all-reduce all-reduce all-reduce     while backward still runs

Backward finishes the last layer's gradients first. They are final then, so their all-reduce can start while the
layers in front are still being computed: the gradients are cut into *buckets*, slices of the flat vector in the order
in which backward completes them, and each is sent as soon as it and those before it are ready. The order is the same
on every rank, whatever is ready first there, because collectives are matched by their order.

Each replica divides its summed loss by the size of the *global* batch. So the sum of the replicas' gradients is the
gradient of the mean loss over the global batch, however unevenly it was shared, and nothing is averaged.

Cost per step with p ranks and n bytes of gradients: one all-reduce for each bucket. By the ring a rank sends
2 (p-1)/p n bytes in 2 (p-1) messages a bucket, which is the least; a small bucket goes another way, in fewer messages
(the table is in `comm/all_reduce.py`). Memory per rank: as one process with 1/p of the batch.

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2.

    mpiexec -n 4 python -m minidist.train --mode data
"""

import math
from collections.abc import Sequence

from minidist import _kernels as kernels
from minidist.comm import Communicator, Request
from minidist.nn.flat import Bucket, Group, cut_into_buckets
from minidist.optim import Optimizer
from minidist.sync.seam import Sync

# A bucket should be large enough that its all-reduce is limited by bandwidth and small enough that the first one
# leaves early. PyTorch's default is 25 MB, for models a hundred times larger than ours.
BYTES_PER_BUCKET = 1 << 20


class DataParallel(Sync):
    """Sum the gradients of all replicas in buckets, during backward, and apply the same update everywhere.

    comm: one replica per rank.
    clip_norm: scale the gradient down to this norm where it is longer (Pascanu et al. 2013, algorithm 1).
    """

    def __init__(
        self,
        comm: Communicator,
        groups: Sequence[Group],
        optimizer: Optimizer,
        clip_norm: float | None = None,
        bytes_per_bucket: int = BYTES_PER_BUCKET,
    ) -> None:
        self.comm = comm
        self.optimizer = optimizer
        self.clip_norm = clip_norm
        self.buckets = cut_into_buckets(groups, bytes_per_bucket)
        self._ready: set[int] = set()  # indices of buckets that are final but not launched
        self._requests: list[Request] = []
        for group in groups:  # replicas start equal, whatever each of them was built from
            comm.broadcast(group.weights, root=0, purpose="weights")
            group.updated()

    def gradient_ready(self, bucket: Bucket) -> None:
        """Launch every bucket that is ready and whose turn it is."""
        self._ready.add(bucket.index)
        while len(self._requests) in self._ready:
            gradients = self.buckets[len(self._requests)].gradients
            self._requests.append(self.comm.iall_reduce(gradients, out=gradients, purpose="gradient"))

    def tick(self) -> None:
        """Move the all-reduces that are on their way; MPI does little while nobody calls it."""
        self.comm.progress.advance()

    def step(self) -> float:
        """Wait for the summed gradients, clip them, update the weights; return the norm before clipping."""
        for request in self._requests:
            request.wait()
        self._requests.clear()
        self._ready.clear()
        norm = math.sqrt(sum(kernels.sum_of_squares(bucket.gradients) for bucket in self.buckets))
        scale = 1.0
        if self.clip_norm is not None and norm > self.clip_norm:
            scale = self.clip_norm / norm
        self.optimizer.step(scale)
        return norm
