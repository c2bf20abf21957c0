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

Where all replicas are on one machine, the gradients live in memory that all of them see, and an all-reduce sends
nothing: every rank adds up one piece of everybody's bucket (`comm/shared_memory.py`). Else they go by messages.

Cost per step with p ranks and n bytes of gradients: one all-reduce for each bucket. By the ring a rank sends
2 (p-1)/p n bytes in 2 (p-1) messages a bucket, which is the least; in shared memory it reads and writes as many of
others; a small bucket that is sent goes another way, in fewer messages (the table is in `comm/all_reduce.py`).
Memory per rank: as one process with 1/p of the batch.

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2.

    mpiexec -n 4 python -m minidist.train --mode data
"""

import sys
from collections.abc import Iterator, Sequence

from minidist.comm import Mesh, NotShared, Request
from minidist.nn.flat import Bucket, Group, cut_into_buckets
from minidist.optim import Optimizer
from minidist.sync import clipping
from minidist.sync.seam import InOrder, Sync, start_equal

# A bucket should be large enough that its all-reduce is limited by bandwidth and small enough that the first one
# leaves early. PyTorch's default is 25 MB, for models a hundred times larger than ours.
BYTES_PER_BUCKET = 1 << 20


class DataParallel(Sync):
    """Sum the gradients of all replicas in buckets, during backward, and apply the same update everywhere.

    mesh: its axis "data" is where replicas differ; a replica may itself be spread over other axes.
    clip_norm: scale the gradient down to this norm where it is longer (Pascanu et al. 2013, algorithm 1).
    shared_memory: True: let the gradients live in memory that all ranks see, and raise NotShared where that cannot
        be; False: send them; None: share if possible, and say once why if not.
    """

    def __init__(
        self,
        mesh: Mesh,
        groups: Sequence[Group],
        optimizer: Optimizer,
        clip_norm: float | None = None,
        bytes_per_bucket: int = BYTES_PER_BUCKET,
        shared_memory: bool | None = None,
    ) -> None:
        self.mesh = mesh
        self.optimizer = optimizer
        self.clip_norm = clip_norm
        self.groups = groups
        self.buckets = cut_into_buckets(groups, bytes_per_bucket)
        self._order = InOrder(self.buckets)
        self._requests: dict[int, Request] = {}  # by bucket
        self.shared = False  # whether the gradients live in memory that all ranks see
        # A tied weight, say, has a gradient that is still a partial sum over two stages of the pipeline: that sum and
        # the one over the replicas are one all-reduce.
        self._comms = [mesh.comm(*bucket.group.axes) for bucket in self.buckets]
        if shared_memory is not False:
            self._share_gradients(required=bool(shared_memory))
        start_equal(mesh, groups)

    def _share_gradients(self, required: bool) -> None:
        """Move the gradients to where all ranks see them; the same happens on every rank."""
        try:
            for group in self.groups:
                comm = self.mesh.comm(*group.axes)
                if group.gradients is not None and comm.size > 1:
                    group.move_gradients(comm.allocate_shared)
                    self.shared = True
        except NotShared as error:
            if required:
                raise
            if self.mesh.everyone.rank == 0 and self.mesh.everyone.transport != "imagined":
                print(f"note: gradients are sent by messages, for {error}", file=sys.stderr)

    def gradient_ready(self, bucket: Bucket) -> None:
        """Launch every bucket that is ready and whose turn it is; what one rank has alone needs no sum."""
        for due in self._order.ready(bucket):
            comm = self._comms[due.index]
            if comm.size > 1:
                request = comm.iall_reduce(due.gradients, out=due.gradients, purpose="gradient")
                self._requests[due.index] = request

    def tick(self) -> None:
        """Move the all-reduces that are on their way; MPI does little while nobody calls it."""
        self.mesh.everyone.progress.advance()

    def combine(self) -> None:
        """Wait for the summed gradients."""
        for _ in self._arriving():
            pass

    def _arriving(self) -> Iterator[tuple[int, slice]]:
        """Wait for one bucket after another, and yield its place: (number of the trainable group, region)."""
        numbers = {id(group): number for number, group in enumerate(self.optimizer.groups)}
        for bucket in self.buckets:
            if bucket.index in self._requests:
                self._requests.pop(bucket.index).wait()
            yield numbers[id(bucket.group)], bucket.region
        self._order.restart()

    def step(self) -> float:
        """Wait for the summed gradients, clip them, update the weights; return the norm before clipping.

        Without clipping a bucket's weights are updated while the next buckets are still on their way.
        """
        if self._requests:
            arriving = self._arriving()
        else:  # nothing was sent: one update of everything is the fastest
            arriving = None
            self._order.restart()
        return clipping.update(self.mesh, self.groups, self.optimizer, self.clip_norm, arriving)
