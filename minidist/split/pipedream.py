"""PipeDream: a pipeline that updates after every microbatch, and so never waits for a batch to end.

    3 ranks, 6 minibatches; v: how many updates the weights have seen that a forward uses

    rank 0   F0 F1 F2 .. .. .. .. B0 B0 F3 B1 B1 F4 B2 B2 F5 B3 B3 .. B4 B4 .. B5 B5     v = 0 0 0 1 2 3
    rank 1   .. F0 F1 .. .. B0 B0 F2 B1 B1 F3 B2 B2 F4 B3 B3 F5 B4 B4 .. B5 B5 .. ..     v = 0 0 1 2 3 4
    rank 2   .. .. F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 F4 B4 B4 F5 B5 B5 .. .. .. ..     v = 0 1 2 3 4 5

Each microbatch is a minibatch of its own here: its loss is divided by its own global count, and its gradient is
applied at once, while others are on their way with weights from before. **This is not what one process would do.**
Rank i of S computes minibatch m with weights that have seen m - (S-1-i) updates, not m: gradients are S-1-i updates
old, and on another rank of the pipe they are of another age (the paper's "vertical sync", which would make all as old
as on rank 0, is not done, nor by default there). With one rank it is plain SGD on minibatches.

What a gradient must not do is to mix two versions: backward needs the very weights that its forward used. So a rank
keeps them (*weight stashing*): each version that a microbatch on its way still needs. Without it the tape, which knows
with which version it was recorded, refuses.

Cost: bytes as other schedules; one update, and one all-reduce over the replicas, for each microbatch. Memory on rank i:
min(M, S - i) microbatches' activations and as many versions of its weights. Idle: (S-1) (F + B) for each call of
`forward_backward`, because here the pipe runs empty at the end of what it was given: give it many microbatches.
A weight tied between two ranks makes the later one wait for the earlier one in every update.

Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, section 3.3.

    mpiexec -n 4 python -m minidist.train --mode pipeline --schedule pipedream

Read next: `minidist/sync/model_averaging.py`, where replicas, not stages, differ in age.
"""

from collections.abc import Sequence

import numpy as np

from minidist.autograd import Parameter
from minidist.autograd.backward import WeightPart
from minidist.comm import Mesh
from minidist.data.loader import microbatches as cut_rows
from minidist.errors import UserError
from minidist.split.pipeline_parallel import PipelineParallel
from minidist.split.replica import Argmax, Batch, Loss, whole_argmax
from minidist.split.schedules import Update, pipedream
from minidist.split.stages import Stage
from minidist.sync.data_parallel import DataParallel


class PipeDream(PipelineParallel):
    """Run this rank's stage, and update its weights after each of the batch's microbatches.

    The last microbatch's update is left to the `sync.step()` of the training loop. Raises UserError for a sync that
    clips (no norm of a whole gradient is ever known) or that is not data parallel.
    """

    def __init__(
        self,
        stage: Stage,
        loss: Loss,
        sync: DataParallel,
        mesh: Mesh,
        microbatches: int = 4,
        argmax: Argmax = whole_argmax,
    ) -> None:
        if not isinstance(sync, DataParallel):
            raise UserError(
                f"PipeDream updates by itself and goes with data parallel alone, got {type(sync).__name__}"
            )
        if sync.clip_norm is not None:
            raise UserError(
                f"the norm is to be clipped at {sync.clip_norm:g}, but PipeDream's stages update at different times "
                "and never know the norm of a whole gradient; leave clipping out, or take schedule '1f1b'"
            )
        if len(stage.chunks) > 1:
            raise UserError(f"PipeDream has one stage for each rank, got {len(stage.chunks)} chunks: take 1")
        super().__init__(stage, loss, sync, mesh, microbatches=microbatches, argmax=argmax)
        self.data = mesh.comm("data")
        self.parallel = sync
        self._versions: dict[int, list[int]] = {}  # microbatch -> version of each parameter in its forward

    def forward_backward(self, batch: Batch) -> float:
        """Train on each microbatch; give the mean loss of the batch where the last stage is, and 0.0 elsewhere."""
        parts = list(
            zip(
                cut_rows(batch.inputs, self.microbatches),
                cut_rows(batch.labels, self.microbatches),
                strict=True,
            )
        )
        own = np.array([labels.size for _, labels in parts], np.int64)
        counts = self.data.all_reduce(own, purpose="control").tolist()
        batches = [Batch(*part, count) for part, count in zip(parts, counts, strict=True) if count]
        self.begin()
        # Replicas update together: one without an example of a microbatch takes part in its update alone.
        program = [
            instruction
            for instruction in self.program(pipedream, len(batches))
            if isinstance(instruction, Update) or len(batches[instruction.microbatch].inputs)
        ]
        self.run(program, batches)
        if not batches:
            self.end()
        return sum(loss * batches[m].count for m, loss in self.losses.items()) / max(1, sum(counts))

    def forward(self, m: int, chunk: int) -> None:
        """As in other schedules, and note with which weights."""
        self._versions[m] = [parameter.version for parameter in self.stage.parameters_of[chunk]]
        super().forward(m, chunk)

    def backward(self, m: int, chunk: int, defer: Sequence[Parameter] = ()) -> list[WeightPart]:
        """As in other schedules, but every gradient is final."""
        self._last = dict.fromkeys(self.stage.parameters_of[chunk], (m, chunk))
        return super().backward(m, chunk, defer)

    def update(self, m: int) -> None:
        """Combine this microbatch's gradient with the other replicas', and apply it."""
        self.end()
        self.stash()
        if m < len(self._batches) - 1:
            self.parallel.combine()
            self.parallel.optimizer.step()
            self.begin()

    def stash(self) -> None:
        """Keep a copy of the weights if a microbatch on its way was begun with them; free what nobody needs."""
        for number, parameter in enumerate(self.stage.parameters_of[0]):
            used = {self._versions[m][number] for m, _ in self._live}
            if parameter.version in used:
                parameter.keep_version()
            parameter.forget_versions(min(used, default=parameter.version + 1))
