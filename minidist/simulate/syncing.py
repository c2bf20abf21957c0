"""What a rank does in a step so that replicas agree, as acts: what takes time in each file of `minidist/sync/`.

    gradient_ready    data parallel starts an all-reduce, ZeRO a reduce-scatter, a worker sends to the servers
    step              wait, update, and what weights have to travel

Tags name a collective by its communicator and its number there, as the collectives of real ranks are matched.
"""

import argparse
from collections import Counter
from collections.abc import Hashable, Iterator

from minidist.comm import Communicator
from minidist.comm.shared_memory import memory_for
from minidist.nn.flat import Bucket
from minidist.plan.acts import Act, Collect, Compute, Receive, Send, Wait
from minidist.plan.syncs import NOTE
from minidist.plan.zero import QUESTION
from minidist.simulate.costs import Costs
from minidist.sync import partial
from minidist.sync.data_parallel import DataParallel
from minidist.sync.model_averaging import ModelAveraging
from minidist.sync.parameter_server import ParameterServer
from minidist.sync.zero import Zero
from minidist.train.setup import Setup


class Collectives:
    """Number the collectives of one rank, on each of its communicators."""

    def __init__(self) -> None:
        self.started: Counter[tuple[int, ...]] = Counter()

    def start(
        self,
        operation: str,
        comm: Communicator,
        n: int,
        itemsize: int,
        what: str,
        algorithm: str | None = None,
    ) -> Iterator[Collect]:
        """Start one, unless this rank is alone there."""
        if comm.size > 1:
            number = self.started[comm.members]
            self.started[comm.members] += 1
            tag = (what, comm.name, comm.members[0], number)
            yield Collect(operation, comm.members, n, itemsize, tag, algorithm)

    def now(self, operation: str, comm: Communicator, n: int, itemsize: int, what: str) -> Iterator[Act]:
        """Start one and wait for it."""
        for act in self.start(operation, comm, n, itemsize, what):
            yield act
            yield Wait(act.tag)


class Syncing:
    """The acts of one rank's sync."""

    def __init__(
        self, options: argparse.Namespace, setup: Setup, costs: Costs, collectives: Collectives
    ) -> None:
        self.options, self.setup, self.costs, self.collectives = options, setup, costs, collectives
        self.mesh, self.sync, self.buckets = setup.mesh, setup.sync, setup.sync.buckets
        self.rank = setup.mesh.everyone.members[setup.mesh.everyone.rank]
        self.slots = {"sgd": 1, "adamw": 2}[options.optimizer]
        self.flying: dict[int, Hashable] = {}  # by bucket
        self.steps = 0

    def ready(self, bucket: Bucket) -> Iterator[Act]:
        """Let a bucket go whose gradients are final."""
        sync, size, itemsize = self.sync, bucket.size, bucket.group.dtype.itemsize
        if isinstance(sync, ParameterServer):
            if not partial.is_partial(bucket.group):
                yield from self.push(bucket)
        elif isinstance(sync, DataParallel | Zero):
            comm, what, how = self.mesh.comm(*bucket.group.axes), "all_reduce", None
            if isinstance(sync, Zero):
                what = "reduce_scatter"
            elif comm.size > 1 and memory_for(comm, bucket.gradients, bucket.gradients) is not None:
                how = "shared"
            for act in self.collectives.start(what, comm, size, itemsize, "gradients", how):
                self.flying[bucket.index] = act.tag
                yield act

    def step(self) -> Iterator[Act]:
        """Combine with the other replicas and update."""
        sync = self.sync
        self.steps += 1
        if isinstance(sync, DataParallel):
            yield from self.combine()
            yield from self.norm()
        elif isinstance(sync, Zero):
            yield from self.zero_step(sync)
        elif isinstance(sync, ModelAveraging):
            yield from self.complete()
            yield self.update(sum(group.weights.nbytes for group in sync.trained))
            yield from self.norm()
            if self.steps % self.options.average_every == 0:
                yield from self.average(sync)
        elif isinstance(sync, ParameterServer):
            yield from self.server_step(sync)

    def combine(self) -> Iterator[Act]:
        """Wait for one bucket after another, and update each when it has come."""
        if not self.flying:
            yield self.update(sum(bucket.gradients.nbytes for bucket in self.buckets))
            return
        for bucket in self.buckets:
            if bucket.index in self.flying:
                yield Wait(self.flying.pop(bucket.index))
            yield self.update(bucket.gradients.nbytes)

    def update(self, nbytes: int) -> Compute:
        """Update so many bytes of weights."""
        return Compute("update", self.options.optimizer, self.costs.update(nbytes, self.slots))

    def norm(self) -> Iterator[Act]:
        """Find the norm where the gradient is spread over a replica."""
        yield from self.collectives.now("all_reduce", self.mesh.replica(), 1, 8, "norm")

    def complete(self) -> Iterator[Act]:
        """Sum what is partial within the replica."""
        for group in self.setup.groups:
            if group.gradients is not None and partial.is_partial(group):
                comm = self.mesh.comm(*(axis for axis in group.axes if axis != "data"))
                n, itemsize = group.weights.size, group.dtype.itemsize
                yield from self.collectives.now("all_reduce", comm, n, itemsize, "partial sums")

    def average(self, sync: ModelAveraging) -> Iterator[Act]:
        """Average the weights of all replicas, and the optimizer's state if that is asked for."""
        comm = self.mesh.comm("data")
        yield from self.collectives.now("all_gather", comm, comm.size, 16, "examples")
        vectors = list(sync.trained)
        if self.options.average_state == "average":
            vectors += [group for _ in range(self.slots) for group in sync.trained]
        started = [
            act
            for group in vectors
            for act in self.collectives.start(
                "all_reduce", comm, group.weights.size, group.dtype.itemsize, "weights"
            )
        ]
        yield from started
        yield from (Wait(act.tag) for act in started)

    # ---- ZeRO

    def zero_step(self, sync: Zero) -> Iterator[Act]:
        """Update this rank's shards, and share the weights."""
        for index in list(self.flying):
            yield Wait(self.flying.pop(index))
        if sync.stage == 3:
            yield from self.no_more(sync)
        yield self.update(sum(shard.weights.nbytes for shard in sync.shards))
        yield from self.collectives.now("all_reduce", self.mesh.everyone, 1, 8, "norm")
        if sync.stage < 3:
            started = [
                act
                for shard in sync.shards
                for act in self.collectives.start(
                    "all_gather", shard.comm, shard.bucket.size, shard.weights.itemsize, "weights"
                )
            ]
            yield from started
            yield from (Wait(act.tag) for act in started)

    def no_more(self, sync: Zero) -> Iterator[Act]:
        """Hear from all others that they fetch nothing more."""
        for comm in {shard.comm.members: shard.comm for shard in sync.shards}.values():
            yield from self.collectives.now("tell", comm, 1, QUESTION, "no more")

    # ---- the parameter server

    def push(self, bucket: Bucket) -> Iterator[Act]:
        """Send each server its part of a bucket, with a note before it."""
        assert isinstance(self.sync, ParameterServer)
        link, itemsize = self.sync.link, bucket.group.dtype.itemsize
        for server, parts in enumerate(self.sync.parts):
            for number, (other, part) in enumerate(parts):
                if other is bucket:
                    yield Send(link.workers + server, NOTE, ("note", self.steps, number))
                    yield Send(
                        link.workers + server,
                        (part.stop - part.start) * itemsize,
                        ("part", self.steps, number),
                    )

    def server_step(self, sync: ParameterServer) -> Iterator[Act]:
        """Push what is left, and pull the new weights."""
        step = self.steps - 1
        self.steps = step  # the parts that follow belong to the same push
        yield from self.complete()
        for bucket in self.buckets:
            if partial.is_partial(bucket.group):
                yield from self.push(bucket)
        self.steps = step + 1
        if not sync.lockstep:
            yield from self.norm()
        servers = range(sync.link.workers, sync.link.workers + sync.link.servers)
        for what in ("push", "pull"):
            yield from (Send(server, NOTE, (what, step)) for server in servers)
        for server, parts in zip(servers, sync.parts, strict=True):
            yield Receive(server, ("version", step))
            yield from (Receive(server, ("weights", step, number)) for number in range(len(parts)))
        for group in self.setup.groups:
            for axis in group.repeated if group.trainable else ():
                comm = self.mesh.comm(axis)
                n, itemsize = group.weights.size, group.dtype.itemsize
                yield from self.collectives.now("broadcast", comm, n, itemsize, "weights")
