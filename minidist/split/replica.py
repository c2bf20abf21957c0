"""What every replica has in common: telling the sync, once a step and bucket, that gradients are final.

    bucket 0: head.weight, head.bias          waits for 2 parameters     backward reaches them first
    bucket 1: hidden.weight, hidden.bias      waits for 2 parameters

The tape reports a parameter after its last contribution in a backward pass; a bucket is ready when all of its
parameters have been reported in the step's *last* pass. What that pass did not use is ready when it ends. A sync that
names no buckets hears nothing, and finds all gradients of the step when the replica is done.
Read next: `whole.py`, the simplest replica.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd import Parameter, Tensor, WeightPart, ops
from minidist.data.loader import microbatches
from minidist.nn.module import Module
from minidist.sync.seam import Sync

# (outputs, labels, count) -> the sum of the targets' losses / count, a 0-d tensor
Loss = Callable[[Tensor, np.ndarray, int], Tensor]
# outputs (..., classes) -> the most likely class of each target (...)
Argmax = Callable[[Tensor], np.ndarray]


def whole_loss(outputs: Tensor, labels: np.ndarray, count: int) -> Tensor:
    """Sum the cross entropies of all targets and divide by `count`."""
    return ops.cross_entropy(outputs, labels, count)


def whole_argmax(outputs: Tensor) -> np.ndarray:
    """Find the largest logit of each target."""
    return kernels.argmax(outputs.data, axis=-1)


@dataclass(frozen=True)
class Batch:
    """One replica's share of a global batch.

    inputs, labels: this replica's examples, maybe none.
    count: what the summed loss is divided by: the number of targets in the *global* batch (examples, or tokens).
        Because every replica, microbatch and accumulation step divides by this same number, plain sums combine them.
    """

    inputs: np.ndarray
    labels: np.ndarray
    count: int

    def cut(self, pieces: int) -> list["Batch"]:
        """Cut into so many microbatches; those that would be empty are left out."""
        if pieces == 1 and len(self.inputs):
            return [self]
        pairs = zip(microbatches(self.inputs, pieces), microbatches(self.labels, pieces), strict=True)
        return [Batch(inputs, labels, self.count) for inputs, labels in pairs if len(inputs)]


class Replica:
    """Keep the parameters of `model` ready for the next step, and count which buckets still wait for gradients."""

    def __init__(self, model: Module, sync: Sync) -> None:
        self.model = model
        self.sync = sync
        self._parameters = model.parameters()
        self._bucket_of = {parameter: bucket for bucket in sync.buckets for parameter in bucket.parameters}
        self._waiting = {bucket.index: len(bucket.parameters) for bucket in sync.buckets}
        self._missing: dict[int, int] = {}  # bucket index -> parameters that backward has not reported yet

    def forward_backward(self, batch: Batch) -> float:
        """Make the gradients of this replica's share of the batch.

        Returns this rank's share of the loss: the shares of all ranks, of all replicas, sum to the loss of the batch.
        """
        raise TypeError(f"{type(self).__name__} does not say how to compute: define forward_backward(batch)")

    def predict(self, inputs: np.ndarray) -> np.ndarray | None:
        """Give the most likely class of each target; None on a rank of the replica that does not know it."""
        raise TypeError(f"{type(self).__name__} does not say how to predict: define predict(inputs)")

    def walk(
        self,
        root: Tensor,
        grad: np.ndarray | None = None,
        defer: Iterable[Parameter] = (),
        ready: Callable[[Parameter], None] | None = None,
        *,
        tick: Callable[[], None],
    ) -> list[WeightPart]:
        """Go backward from `root`, free what is behind; `tick` hears of each node of the tape that is done."""
        return root.backward(grad, defer=defer, ready=ready, tick=tick, release=True)

    def begin(self) -> None:
        """Forget the gradients of the step before."""
        self._missing = self._waiting.copy()
        for parameter in self._parameters:
            parameter.zero_grad()

    def ready(self, parameter: Parameter) -> None:
        """Take the tape's word that a parameter has had its last contribution of the step."""
        bucket = self._bucket_of.get(parameter)
        if bucket is None:  # this sync does not ask about it
            return
        index = bucket.index
        self._missing[index] = left = self._missing[index] - 1
        if not left:
            del self._missing[index]
            self.sync.gradient_ready(bucket)

    def end(self) -> None:
        """Declare the rest ready too: what no microbatch used gets zeros, and joins every collective."""
        for parameter in self._parameters:
            if not parameter.grad_written:
                parameter.finish()
        if self._missing:
            for bucket in self.sync.buckets:
                if bucket.index in self._missing:
                    self.sync.gradient_ready(bucket)
        self._missing.clear()
