"""A whole copy of the model on one rank: the answer that needs no communication.

    rank 0  [ embed | block | block | head ]        a replica
    rank 1  [ embed | block | block | head ]        another one; how they agree is the sync's affair

Memory: weights, gradients, optimizer state and activations, all of them. Messages: none.

Accumulation cuts a batch into pieces which go through the model one after another, and adds up their gradients: the
same gradient as at once, to rounding, with the activations of one piece in memory. Read next:
`minidist/sync/data_parallel.py`.
"""

import numpy as np

from minidist.autograd import Tensor, no_grad
from minidist.nn.module import Module
from minidist.split.replica import Argmax, Batch, Loss, Replica, whole_argmax
from minidist.sync.seam import Sync


class Whole(Replica):
    """Run one copy of a model on this rank.

    loss: maps (model outputs, labels, count) to the 0-d sum of the examples' losses divided by count.
    accumulate: into how many pieces to cut each batch.
    argmax: maps model outputs to the class of each target.
    """

    def __init__(
        self, model: Module, loss: Loss, sync: Sync, accumulate: int = 1, argmax: Argmax = whole_argmax
    ) -> None:
        super().__init__(model, sync)
        self.loss = loss
        self.argmax = argmax
        self.accumulate = accumulate

    def forward_backward(self, batch: Batch) -> float:
        """Make the gradients of this replica's share of the batch, and return its share of the loss."""
        self.begin()
        total = 0.0
        pieces = batch.cut(self.accumulate)
        for m, piece in enumerate(pieces):
            loss = self.forward(m, piece)
            # Only the last piece makes gradients final; a rank that has no piece goes straight to end().
            self.backward(m, loss, final=m == len(pieces) - 1)
            total += loss.item()
        self.end()
        return total

    def forward(self, m: int, piece: Batch) -> Tensor:
        """Compute the loss of piece number m."""
        return self.loss(self.model(piece.inputs), piece.labels, piece.count)

    def backward(self, m: int, loss: Tensor, final: bool) -> None:
        """Add the gradients of piece number m; `final`: no further piece will add to them."""
        self.walk(loss, ready=self.ready if final else None, tick=self.sync.tick)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Give the class that the model finds most likely for each target of these examples."""
        with no_grad():
            return self.argmax(self.model(inputs))
