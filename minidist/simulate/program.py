"""What a rank does in a training step, as acts for the simulator: the instructions that it would really carry out.

    Forward(m=0), Send(...), Backward(...)     ->  compute a piece, compute a piece, send so many bytes, ...
    a bucket's last gradient is there          ->  what its sync starts then (`syncing.py`)
    the end                                    ->  the loss, and sync.step()

A pipeline's instructions are those of its own executor; a whole model is a pipeline of one stage. A stage is computed
piece by piece, and tensor parallel pieces talk where their values enter and leave split layers.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minidist.autograd import Parameter
from minidist.data import Dataset
from minidist.plan import splits, zero
from minidist.plan.acts import Act, Compute, Fetch, Hold, Receive, Send, Wait
from minidist.plan.traffic import even
from minidist.simulate.costs import Costs
from minidist.simulate.syncing import Collectives, Syncing
from minidist.split import schedules
from minidist.split.pipedream import PipeDream
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.sync.zero import Zero
from minidist.train.forecast_step import microbatch_sizes, shares
from minidist.train.holdings import entering, kept
from minidist.train.setup import Setup, as_model_input, declare_model

Done = tuple[int, int, int]  # (microbatch, chunk, piece): a backward


class Program:
    """One rank's acts."""

    def __init__(self, options: argparse.Namespace, dataset: Dataset, setup: Setup, costs: Costs) -> None:
        self.options, self.dataset, self.setup, self.costs = options, dataset, setup, costs
        self.mesh, self.model, self.replica = setup.mesh, setup.model, setup.replica
        self.collectives = Collectives()
        self.syncing = Syncing(options, setup, costs, self.collectives)
        self.itemsize = np.dtype(options.dtype).itemsize
        self.targets = dataset.train_labels[0].size
        self.count = len(self.model.pieces())
        self.chunks = [slice(0, self.count)]
        self.piped = isinstance(self.replica, PipelineParallel)
        if isinstance(self.replica, PipelineParallel):
            stages, rank = self.replica.stages, self.replica.rank
            self.chunks = self.replica.stage.runs[rank::stages]
        self.tensor = self.mesh.axes.get("tensor", 1) > 1
        self.left: dict[int, int] = {}  # by bucket: parameters whose gradients are not final yet
        self.next = 0  # the bucket whose turn it is
        self.final: dict[Done, list[Parameter]] = {}
        self.bucket_of = {p: bucket for bucket in setup.sync.buckets for p in bucket.parameters}
        self.here: int | None = None  # the bucket of weights that was fetched last
        self.fetched = self.step = 0
        self.reads: list[zero.PieceReads] = []
        if isinstance(setup.sync, Zero) and setup.sync.stage == 3:
            one = as_model_input(dataset.train_inputs[:1], "float32")
            self.reads = zero.piece_reads(declare_model(options, dataset), one)

    def acts(self, steps: int = 1) -> Iterator[Act]:
        """Give the acts of so many steps, and at first what is held."""
        yield Hold(sum(held.nbytes for held in kept(self.options, self.dataset, self.setup) if held.always))
        n = shares(self.options, self.setup, self.options.batch)[self.mesh.coordinates["data"]]
        for self.step in range(steps):
            self.begin()
            if self.costs.begin:
                yield Compute("compute", "begin", self.costs.begin)
            rounds = microbatch_sizes(self.options, n) if self.piped else [[m] for m in self.pieces(n)]
            for number, sizes in enumerate(rounds):
                yield from self.round(sizes, number, last=number == len(rounds) - 1)
            yield from self.end()
            loss = list(self.collectives.start("all_reduce", self.mesh.everyone, 1, 8, "loss"))
            yield from loss
            if not self.setup.sync.lockstep:
                yield from self.collectives.now("all_reduce", self.mesh.replica(), 1, 8, "the replica's loss")
            yield from self.syncing.step()
            self.here = None
            yield from (Wait(act.tag) for act in loss)

    def pieces(self, examples: int) -> list[int]:
        """Cut a replica's examples for accumulation."""
        return [n for n in even(examples, self.options.accumulate) if n]

    def round(self, sizes: Sequence[int], number: int, last: bool) -> Iterator[Act]:
        """Give the acts of one schedule over microbatches of these sizes."""
        replica, program = self.replica, list(schedules.naive(1, 0, len(sizes)))
        if isinstance(replica, PipeDream):
            counts = self.collectives.now("all_reduce", self.mesh.comm("data"), len(sizes), 8, "sizes")
            yield from counts
            program = list(replica.program(schedules.pipedream, len(sizes)))  # type: ignore[arg-type]
        elif isinstance(replica, PipelineParallel):
            program = list(replica.program(replica.schedule, len(sizes)))  # type: ignore[arg-type]
        if last and not isinstance(replica, PipeDream):
            self.final = self.last_uses(program)
        for instruction in program:
            yield from self.instruction(instruction, sizes, number)

    def instruction(self, instruction: Any, sizes: Sequence[int], number: int) -> Iterator[Act]:
        """Give the acts of one instruction."""
        match instruction:
            case schedules.Receive(m, stage, gradient, peer):
                yield Receive(self.world(peer), self.tag(m, stage, gradient, number))
            case schedules.Send(m, stage, gradient, peer):
                assert isinstance(self.replica, PipelineParallel)
                run = self.replica.stage.runs[stage if gradient else stage - 1]
                nbytes = splits.numbers_after(self.model, run.stop - 1) * sizes[m] * self.itemsize
                yield Send(self.world(peer), nbytes, self.tag(m, stage, gradient, number))
            case schedules.Forward(m, chunk):
                yield from self.hold(chunk, sizes[m], 1)
                if not (self.options.recompute and self.chunks[chunk].stop == self.count):
                    yield from self.forward(m, chunk, sizes[m])
            case schedules.Backward(m, chunk) | schedules.BackwardInput(m, chunk):
                if self.options.recompute:
                    yield from self.forward(m, chunk, sizes[m])
                both = isinstance(instruction, schedules.Backward)
                if isinstance(self.replica, PipeDream):
                    self.begin()
                    self.final = self.last_uses([instruction])
                yield from self.backward(m, chunk, sizes[m], both)
                if both:
                    yield from self.hold(chunk, sizes[m], -1)
            case schedules.BackwardWeight(m, chunk):
                run = self.chunks[chunk]
                seconds = sum(
                    self.costs.weights_part(self.model, p, sizes[m]) for p in range(run.start, run.stop)
                )
                yield Compute("weights", "stage", seconds, m, chunk)
                for piece in range(run.start, run.stop):
                    yield from self.ready(m, chunk, piece)
                yield from self.hold(chunk, sizes[m], -1)
            case schedules.Update(m):
                yield from self.end()
                if m < len(sizes) - 1:
                    yield from self.syncing.combine()

    def forward(self, m: int, chunk: int, n: int) -> Iterator[Act]:
        """Compute the pieces of a chunk, and what the loss needs behind the last one."""
        for piece in range(self.chunks[chunk].start, self.chunks[chunk].stop):
            yield from self.fetch(self.reads[piece].forward if self.reads else ())
            yield from self.split_layers(piece, n, forward=True)
            yield Compute(
                "forward", "stage", self.costs.forward(self.model, piece, n), m, chunk, f"piece {piece}"
            )
            if self.tensor and piece == self.count - 1 and splits.classes_are_split(self.model):
                for count in (1, 2):
                    numbers, comm = count * n * self.targets, self.mesh.comm("tensor")
                    yield from self.collectives.now(
                        "all_reduce", comm, numbers, self.itemsize, "loss over classes"
                    )

    def backward(self, m: int, chunk: int, n: int, both: bool) -> Iterator[Act]:
        """Compute the gradients of a chunk; both: of its weights, too."""
        for piece in reversed(range(self.chunks[chunk].start, self.chunks[chunk].stop)):
            yield from self.fetch(self.reads[piece].backward if self.reads else ())
            seconds = self.costs.backward(self.model, piece, n)
            if not both:
                seconds -= self.costs.weights_part(self.model, piece, n)
            yield Compute("backward", "stage", seconds, m, chunk, f"piece {piece}")
            yield from self.split_layers(piece, n, forward=False)
            if both:
                yield from self.ready(m, chunk, piece)

    def split_layers(self, piece: int, n: int, forward: bool) -> Iterator[Act]:
        """Talk where values enter split layers and leave them; all of a piece at once, before it or behind it."""
        if not self.tensor:
            return
        comm, pieces = self.mesh.comm("tensor"), splits.in_pieces(self.model)
        time = self.targets
        for how, width in splits.split_layers(self.model, range(piece, piece + 1)):
            gathers = (how == "enter") == forward
            if pieces:  # cut along time
                operation = "all_gather" if gathers else "reduce_scatter"
                yield from self.collectives.now(
                    operation, comm, time, n * width * self.itemsize, "activations"
                )
            elif not gathers:
                yield from self.collectives.now(
                    "all_reduce", comm, n * time * width, self.itemsize, "activations"
                )

    # ---- gradients that are final

    def last_uses(self, program: Sequence[Any]) -> dict[Done, list[Parameter]]:
        """Say which parameters' gradients are final after which backward of which piece."""
        last: dict[Parameter, Done] = {}
        pieces = self.model.pieces()
        for instruction in program:
            if isinstance(instruction, schedules.Backward | schedules.BackwardWeight):
                m, chunk = instruction.microbatch, instruction.chunk
                for piece in reversed(range(self.chunks[chunk].start, self.chunks[chunk].stop)):
                    last.update(dict.fromkeys(pieces[piece].parameters(), (m, chunk, piece)))
        final: dict[Done, list[Parameter]] = {}
        for parameter, done in last.items():
            final.setdefault(done, []).append(parameter)
        return final

    def begin(self) -> None:
        """Begin a step: no gradient is final."""
        self.left = {bucket.index: len(bucket.parameters) for bucket in self.setup.sync.buckets}
        self.final, self.next = {}, 0

    def ready(self, m: int, chunk: int, piece: int) -> Iterator[Act]:
        """Let the buckets go that are final now and whose turn it is."""
        for parameter in self.final.pop((m, chunk, piece), ()):
            if parameter in self.bucket_of:
                self.left[self.bucket_of[parameter].index] -= 1
        buckets = self.setup.sync.buckets
        while self.next < len(buckets) and not self.left[self.next]:
            self.next += 1
            yield from self.syncing.ready(buckets[self.next - 1])

    def end(self) -> Iterator[Act]:
        """Let the rest go."""
        for bucket in self.setup.sync.buckets[self.next :]:
            yield from self.syncing.ready(bucket)
        self.next = len(self.setup.sync.buckets)

    # ---- details

    def fetch(self, names: Sequence[str]) -> Iterator[Act]:
        """Fetch the weights that a piece reads, as ZeRO's stage 3 does."""
        sync = self.setup.sync
        buckets = {p.name: bucket for p, bucket in self.bucket_of.items()}
        for name in names:
            bucket = buckets.get(name)
            if bucket is not None and bucket.index != self.here:
                assert isinstance(sync, Zero)
                self.here = bucket.index
                self.fetched += 1
                comm = sync.shards[bucket.index].comm
                pieces = tuple(n * bucket.group.dtype.itemsize for n in even(bucket.size, comm.size))
                if comm.size > 1:
                    tag = ("weights", self.syncing.rank, self.fetched)
                    yield Fetch(comm.members, pieces, zero.QUESTION, tag)

    def hold(self, chunk: int, n: int, times: int) -> Iterator[Act]:
        """Keep what enters a stage until its backward, or let it go."""
        if self.piped:
            start = self.chunks[chunk].start
            yield Hold(times * n * entering(self.options, self.dataset, self.setup, start))

    def world(self, peer: int) -> int:
        """Give the world rank of a place in the pipe."""
        return self.mesh.comm("pipe").members[peer]

    def tag(self, m: int, stage: int, gradient: bool, number: int) -> tuple[Any, ...]:
        """Say what a message of the pipeline is."""
        return ("gradient" if gradient else "activation", m, "for stage", stage, "in", self.step, number)
