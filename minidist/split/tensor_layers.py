"""Layers of which every tensor rank holds a part; the names of their parameters are those of the whole layers.

    x --enter--> ColumnParallel --> f --> RowParallel --leave--> y        x (n, k), y (n, m)
                 x @ [A0|A1]              [B0]
                 = [x A0|x A1]            [B1] : f(x A0) B0 + f(x A1) B1 is a partial sum on each rank

Columns first, then rows: between the two, any f that works element by element, or head by head, needs no communication.
The bias of the columns is cut like them. The bias of the rows is added after the sum, or it would count p times.

What stands between such pairs (residuals, norms, biases) is a stream that all ranks have whole; with sequence
parallelism each has a piece of it along time. `Stream` and `StreamInPieces` say how a value gets from there into a pair
of layers and back; layers know no more about it. Read next: `tensor_parallel.py`.
"""

import numpy as np

from minidist.autograd import Tensor, ops
from minidist.comm import Communicator, on_tape
from minidist.nn import Embedding, LayerNorm, Linear, Placement, shares


class Stream:
    """Values between split layers, the same on all tensor ranks: gradients of what works there are complete."""

    # The axes over which gradients of parameters in the stream are partial sums.
    partial: tuple[str, ...] = ()

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def enter(self, x: Tensor) -> Tensor:
        """Give a split layer its input."""
        return on_tape.enter(self.comm, x)

    def leave(self, x: Tensor) -> Tensor:
        """Sum the partial results of a split layer."""
        return on_tape.all_reduce(self.comm, x)

    def positions(self, indices: np.ndarray) -> np.ndarray:
        """Say which positions of a sequence are here."""
        return indices

    def share(self, n: int) -> np.ndarray:
        """Say which of n columns, rows or heads this rank holds."""
        return shares(n, self.comm.size)[self.comm.rank]


class StreamInPieces(Stream):
    """Values between split layers, each rank with a piece along time: (batch, time here, width).

    Norms, biases and positions see this rank's positions alone, so their gradients are partial sums over the ranks.
    """

    partial = ("tensor",)

    def enter(self, x: Tensor) -> Tensor:
        return on_tape.all_gather(self.comm, x, dim=1)  # (batch, time, width)

    def leave(self, x: Tensor) -> Tensor:
        return on_tape.reduce_scatter(self.comm, x, dim=1)  # (batch, time here, width)

    def positions(self, indices: np.ndarray) -> np.ndarray:
        return indices[self.share(len(indices))]


class ColumnParallel(Linear):
    """Make some of a linear layer's outputs: x from the stream (..., k) -> (..., columns here)."""

    def __init__(self, whole: Linear, stream: Stream, columns: np.ndarray) -> None:
        self.weight, self.bias = whole.weight, whole.bias
        self.weight.place(Placement(self.weight.shape, 1, columns))
        self.bias.place(Placement(self.bias.shape, 0, columns))
        self.stream = stream

    def forward(self, x: Tensor, activation: str | None = None) -> Tensor:
        return super().forward(self.stream.enter(x), activation)


class RowParallel(Linear):
    """Read some of a linear layer's inputs: x (..., rows here) -> (..., m), into the stream."""

    def __init__(self, whole: Linear, stream: Stream, rows: np.ndarray) -> None:
        self.weight, self.bias = whole.weight, whole.bias  # the bias belongs to the stream
        self.weight.place(Placement(self.weight.shape, 0, rows))
        self.stream = stream

    def forward(self, x: Tensor, activation: str | None = None) -> Tensor:
        y = self.stream.leave(x @ self.weight) + self.bias
        return ops.relu(y) if activation else y


class VocabularyParallel(Embedding):
    """Look up tokens in some rows of the table: (batch, time) -> (batch, time, width), into the stream.

    Rows that are elsewhere count as zeros in the sum. The first use of a tied weight, and cut as the head needs it.
    """

    def __init__(self, whole: Embedding, stream: Stream) -> None:
        self.weight = whole.weight
        self.vocabulary = len(self.weight)
        rows = stream.share(self.vocabulary)
        self.first, self.last = rows[0], rows[-1]
        self.weight.place(Placement(self.weight.shape, 0, rows))
        self.stream = stream

    def forward(self, indices: np.ndarray) -> Tensor:
        if indices.size and not 0 <= indices.min() <= indices.max() < self.vocabulary:
            got = f"indices from {indices.min()} to {indices.max()}"
            raise IndexError(f"the embedding has rows 0 to {self.vocabulary - 1}, got {got}")
        here = (self.first <= indices) & (indices <= self.last)
        found = super().forward(np.where(here, indices - self.first, 0))  # (batch, time, width)
        return self.stream.leave(found * here[..., None])


class Positions(Embedding):
    """Look up the positions of a sequence that are in the stream here."""

    def __init__(self, whole: Embedding, stream: Stream) -> None:
        self.weight = whole.weight
        self.stream = stream

    def forward(self, indices: np.ndarray) -> Tensor:
        return super().forward(self.stream.positions(indices))


class NormBeforeHead(LayerNorm):
    """Norm the stream, and enter the product with a table of which each rank has some rows."""

    def __init__(self, whole: LayerNorm, stream: Stream) -> None:
        self.gain, self.bias, self.eps = whole.gain, whole.bias, whole.eps
        self.stream = stream

    def forward(self, x: Tensor) -> Tensor:
        return self.stream.enter(super().forward(x))
