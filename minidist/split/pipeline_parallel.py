"""Pipeline parallel: each rank holds some layers, and microbatches pass through the ranks one behind the other.

    1F1B, 3 ranks, 3 microbatches (forward takes 1, backward 2)

    rank 0   F0 F1 F2 .. .. .. .. B0 B0 .. B1 B1 .. B2 B2      embed, block
    rank 1   .. F0 F1 .. .. B0 B0 F2 B1 B1 .. B2 B2 .. ..      block, block
    rank 2   .. .. F0 B0 B0 F1 B1 B1 F2 B2 B2 .. .. .. ..      block, head, loss

What is computed when is a schedule (`schedules.py`: plain data); which rank has what is decided by `stages.py`. Here
the instructions are carried out, and that is all. Sends are only started, never waited for before the end, so no
schedule depends on a send being buffered. A message's tag says for which virtual stage and microbatch it is and in
which direction it goes, and every rank checks the whole schedule before it runs it: so no activation can be taken
for another microbatch's. Receives take dtype and shape from the message, so microbatches may be uneven.

All microbatches divide their loss by the count of the global batch, so gradients add up to those of one process. A
bucket's gradient is announced when the last microbatch has contributed, so its all-reduce runs under what is left.

Cost per step with S ranks, M microbatches and V chunks: each border between virtual stages, SV - 1 of them, is
crossed by M activations and M gradients, and the bytes are those of the whole batch however it is cut. Nothing else
is sent but tied weights' gradients. Memory per rank: 1/S of weights, gradients and optimizer state, and the
activations of the microbatches alive (the table is in `schedules.py`). Idle: the share (S-1)/(M+S-1) of the time, with
V chunks (S-1)/(VM+S-1).

`recompute=True` keeps only each microbatch's input and goes forward again when its backward is due: of the activations
inside a stage those of one microbatch are in memory, for a third more work (Chen et al. 2016, "Training Deep Nets with
Sublinear Memory Cost"). Random numbers are functions of where they are used, so the second forward is the first.

Huang et al., "GPipe", NeurIPS 2019, section 2.3; for the other schedules see `schedules.py`.

    mpiexec -n 4 python -m minidist.train --mode pipeline

Read next: `pipedream.py`, which does not wait for a batch to end.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from minidist.autograd import Parameter, Tensor, no_grad
from minidist.autograd.backward import WeightPart
from minidist.comm import Mesh, Request
from minidist.errors import UserError
from minidist.split import schedules
from minidist.split.replica import Argmax, Batch, Loss, Replica, whole_argmax
from minidist.split.schedule_times import simulate
from minidist.split.stages import Stage, cut
from minidist.sync.seam import Sync

__all__ = ["PipelineParallel", "Stage", "cut"]

Key = tuple[int, int]  # (microbatch, chunk)
Program = Sequence[schedules.Instruction]


class PipelineParallel(Replica):
    """Run this rank's stage of a model that is spread over the mesh axis "pipe".

    stage: from `cut`. loss, argmax: as for `Whole`; used where the last virtual stage is.
    schedule: "naive", "gpipe", "1f1b" (interleaved if the stage has several chunks) or "zero-bubble".
    microbatches: into how many to cut a batch; accumulate: how many times to run the whole schedule for one batch.
    recompute: keep no activations but each stage's input.
    """

    def __init__(
        self,
        stage: Stage,
        loss: Loss,
        sync: Sync,
        mesh: Mesh,
        schedule: str = "1f1b",
        microbatches: int = 4,
        accumulate: int = 1,
        recompute: bool = False,
        argmax: Argmax = whole_argmax,
    ) -> None:
        super().__init__(stage, sync)
        if schedule not in schedules.SCHEDULES:
            choices = ", ".join(map(repr, schedules.SCHEDULES))
            raise UserError(f"schedule is {schedule!r}, expected one of {choices}")
        if microbatches < 1:
            raise UserError(f"microbatches is {microbatches}, expected at least 1")
        self.stage, self.loss, self.argmax = stage, loss, argmax
        self.comm = mesh.comm("pipe")
        self.stages, self.rank, self.chunks = self.comm.size, self.comm.rank, len(stage.chunks)
        self.schedule = schedules.SCHEDULES[schedule]
        self.microbatches, self.accumulate, self.recompute = microbatches, accumulate, recompute
        self._programs: dict[tuple[schedules.Schedule, int], Program] = {}
        # What follows belongs to one run of a schedule; what is sent goes by (microbatch, stage, gradient).
        self._batches: Sequence[Batch] = ()
        self._training = True
        self._received: dict[tuple[int, int, bool], np.ndarray] = {}
        self._made: dict[tuple[int, int, bool], np.ndarray] = {}
        self._sends: list[Request] = []
        self._live: dict[Key, tuple[Any, Any]] = {}  # input and output of each forward
        self._deferred: dict[Key, list[WeightPart]] = {}
        self._last: dict[Parameter, Key] = {}  # which backward makes its gradient final, if this run does
        self.losses: dict[int, float] = {}  # by microbatch, where the last virtual stage is

    def forward_backward(self, batch: Batch) -> float:
        """Make the gradients of this rank's stage; give the loss where the last stage is, and 0.0 elsewhere."""
        self.begin()
        total = 0.0
        pieces = batch.cut(self.accumulate)
        for number, piece in enumerate(pieces, start=1):
            batches = piece.cut(self.microbatches)
            program = self.program(self.schedule, len(batches))
            self._last = last_uses(program, self.stage) if number == len(pieces) else {}
            self.run(program, batches)
            total += sum(self.losses.values())
        self.end()
        return total

    def predict(self, inputs: np.ndarray) -> np.ndarray | None:
        """Give the most likely class of each target where the last stage is, and None elsewhere."""
        with no_grad():
            program = self.program(schedules.forward_only, 1)
            self.run(program, [Batch(inputs, inputs[:0], 0)], training=False)
            outputs = self._live[0, self.chunks - 1][1]
            self._live.clear()
            return self.argmax(outputs) if self.is_last(self.chunks - 1) else None

    def program(self, schedule: schedules.Schedule, microbatches: int) -> Program:
        """Give this rank's instructions; those of all ranks are tried out in thought the first time."""
        key = schedule, microbatches
        if key not in self._programs:
            sizes = microbatches, self.chunks
            everyone = [
                schedules.with_messages(schedule, self.stages, rank, *sizes) for rank in range(self.stages)
            ]
            simulate(everyone)
            self._programs[key] = everyone[self.rank]
        return self._programs[key]

    def run(self, program: Program, batches: Sequence[Batch], training: bool = True) -> None:
        """Carry out a rank's instructions. One receive is always posted ahead, to be filled while the rank computes."""
        self._batches, self._training = batches, training
        self.losses.clear()
        posted = map(self.post, [i for i in program if isinstance(i, schedules.Receive)])
        coming = next(posted, None)
        for instruction in program:
            match instruction:
                case schedules.Receive(m, stage, gradient):
                    assert coming is not None, "there are as many as receives"
                    self._received[m, stage, gradient] = coming.wait()
                    coming = next(posted, None)
                case schedules.Send(m, stage, gradient, peer):
                    array = self._made.pop((m, stage, gradient))
                    self._sends = [request for request in self._sends if not request.test()]
                    request = self.comm.isend(array, peer, self.tag(instruction), purpose="activation")
                    self._sends.append(request)
                case schedules.Forward(m, chunk):
                    self.forward(m, chunk)
                case schedules.Backward(m, chunk):
                    self.backward(m, chunk)
                case schedules.BackwardInput(m, chunk):
                    self._deferred[m, chunk] = self.backward(m, chunk, self.stage.parameters_of[chunk])
                case schedules.BackwardWeight(m, chunk):
                    self.weights(m, chunk)
                case schedules.Update(m):
                    self.update(m)
        for request in self._sends:
            request.wait()
        self._sends.clear()

    def post(self, message: schedules.Receive) -> Request:
        """Start to receive a message."""
        return self.comm.irecv_new(message.peer, self.tag(message), purpose="activation")

    def tag(self, message: schedules.Send | schedules.Receive) -> int:
        """Number a message by what it is for: the same number on both sides, and no other message of a run has it."""
        return (message.stage * len(self._batches) + message.microbatch) * 2 + message.gradient

    def tick(self) -> None:
        """Move what is on its way, the sync's messages and ours."""
        self.sync.tick()
        self.comm.progress.advance()

    def is_last(self, chunk: int) -> bool:
        """Say whether a chunk of this rank is the last virtual stage, behind which comes the loss."""
        return self.rank == self.stages - 1 and chunk == self.chunks - 1

    def forward(self, m: int, chunk: int) -> None:
        """Compute a chunk's output for a microbatch, and keep what its backward will need."""
        here = chunk * self.stages + self.rank
        x: Any = self._batches[m].inputs
        if here > 0:
            x = Tensor(self._received.pop((m, here, False)), requires_grad=True)
        last, again = self.is_last(chunk), self.recompute and self._training
        y: Any = None
        if not (last and again):  # there, nobody but backward needs the output
            with no_grad() if again else nullcontext():
                y = self.apply(chunk, x, m)
        if not last:
            self._made[m, here + 1, False] = y.data
        self._live[m, chunk] = x, None if again else y

    def apply(self, chunk: int, x: Any, m: int) -> Tensor:
        """Send a value through a chunk's pieces, and in training through the loss behind the last one."""
        for piece in self.stage.chunks[chunk]:
            x = piece.run(x)
            self.tick()
        if self.is_last(chunk) and self._training:
            x = self.loss(x, self._batches[m].labels, self._batches[m].count)
            self.losses[m] = x.item()
        return x

    def backward(self, m: int, chunk: int, defer: Sequence[Parameter] = ()) -> list[WeightPart]:
        """Compute the gradients of a chunk for a microbatch; those of the parameters in `defer` are left for later."""
        here = chunk * self.stages + self.rank
        x, y = self._live.pop((m, chunk))
        if y is None:
            y = self.apply(chunk, x, m)
        above = None if self.is_last(chunk) else self._received.pop((m, here, True))
        parts: list[WeightPart] = []
        if y.requires_grad:  # unless this is the first stage, and all its parameters are frozen
            ready = partial(self._contributed, (m, chunk)) if self._last else None
            parts = self.walk(y, above, defer, ready, tick=self.tick)
        if here > 0:
            # An output that does not depend on the input gives no gradient, and the rank before is waiting for one.
            self._made[m, here - 1, True] = np.zeros_like(x.data) if x.grad is None else x.grad
        return parts

    def weights(self, m: int, chunk: int) -> None:
        """Compute the gradients of a chunk's weights that its backward has put off."""
        for part in self._deferred.pop((m, chunk)):
            part.run()
            self.tick()

    def update(self, m: int) -> None:
        """Apply one microbatch's gradient; only `pipedream.py` has schedules that say so."""
        raise ValueError("this schedule updates in the middle of a batch: run it by pipedream.PipeDream")

    def _contributed(self, key: Key, parameter: Parameter) -> None:
        if self._last.get(parameter) == key:
            self.ready(parameter)


def last_uses(program: Program, stage: Stage) -> dict[Parameter, Key]:
    """Find for each parameter the last backward that contributes to its gradient."""
    last: dict[Parameter, Key] = {}
    for instruction in program:
        if isinstance(instruction, schedules.Backward | schedules.BackwardWeight):
            key = instruction.microbatch, instruction.chunk
            last.update(dict.fromkeys(stage.parameters_of[instruction.chunk], key))
    return last
