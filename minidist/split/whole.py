"""A whole copy of the model on one rank: the answer that needs no communication.

    rank 0  [ embed | block | block | head ]        a replica
    rank 1  [ embed | block | block | head ]        another one; how they agree is the sync's affair

Memory: weights, gradients, optimizer state and activations, all of them. Messages: none.

Accumulation cuts a batch into pieces which go through the model one after another, and adds up their gradients: the
same gradient as at once, to rounding, with the activations of one piece in memory. Read next:
`minidist/sync/data_parallel.py`.
"""

from collections.abc import Callable

import numpy as np

from minidist.autograd import Tensor
from minidist.nn.module import Module
from minidist.split.replica import Batch, Replica
from minidist.sync.seam import Sync

# (outputs, labels, global count) -> sum over examples / count
Loss = Callable[[Tensor, np.ndarray, int], Tensor]


class Whole(Replica):
    """Run one copy of a model on this rank.

    loss: maps (model outputs, labels, count) to the 0-d sum of the examples' losses divided by count.
    accumulate: into how many pieces to cut each batch.
    """

    def __init__(self, model: Module, loss: Loss, sync: Sync, accumulate: int = 1) -> None:
        super().__init__(model, sync)
        self.loss = loss
        self.accumulate = accumulate

    def forward_backward(self, batch: Batch) -> float:
        """Make the gradients of this replica's share of the batch, and return its share of the loss."""
        self.begin()
        total = 0.0
        pieces = batch.cut(self.accumulate)
        for number, piece in enumerate(pieces, start=1):
            loss = self.loss(self.model(piece.inputs), piece.labels, piece.count)
            # Only the last piece makes gradients final; a rank that has no piece goes straight to end().
            ready = self.ready if number == len(pieces) else None
            loss.backward(ready=ready, tick=self.sync.tick, release=True)
            total += loss.item()
        self.end()
        return total
