"""Communication as an operation on the tape: collectives that have gradients.

Along an axis of ranks, a value is

    the same    on all ranks            x x x
    partial     the true one is a sum   a b c     x = a + b + c
    a piece     along a dim             [x0] [x1] [x2]

and a collective makes one of another. Its gradient is another collective:

    forward                      from -> to                               backward
    enter (nothing is sent)      same -> same, used differently           all-reduce
    all_reduce                   partial -> same                          nothing
    all_gather                   piece -> same, used differently          reduce-scatter
    all_gather_alike             piece -> same, used alike                own slice
    own_slice (nothing is sent)  same -> piece                            all-gather
    reduce_scatter               partial -> piece                         all-gather
    all_to_all                   piece along i -> piece along j           all-to-all back
    broadcast                    one rank -> same, used differently       reduce to the root
    reduce                       partial -> one rank                      broadcast
    send, receive                one rank -> another                      send back

This is the whole theory of model parallelism. To read a row: along these ranks there is *one* loss. A value that is the
same everywhere and used alike has its whole gradient everywhere. Used differently, each rank knows a share of the
gradient, and it takes a sum. So every rank calls backward on its form of the one loss with gradient 1, and the tape,
which all ranks walk newest node first, meets the collectives in one order.

Pieces are cut along any dim, by default as equal as can be, the first ranks one more; `counts` says otherwise. An input
needs a gradient on all ranks or on none. Cost: the collective's own, forward and backward (`collectives.py`,
`all_reduce.py`), counted as "activation"; no memory beyond the results.

Shoeybi et al., "Megatron-LM", 2019, section 3, whose f and g are the first two rows; Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", 2022, section 4.2.2, whose g and its mirror are the third and the
sixth. Read next: `minidist/split/tensor_parallel.py`, which is built of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minidist.autograd import Parameter, Tensor, record
from minidist.comm.arrays import cut
from minidist.comm.communicator import Communicator

Counts = Sequence[int] | None  # how many indices of the dim each rank has
PURPOSE = "activation"


def enter(comm: Communicator, x: Tensor) -> Tensor:
    """Begin to use one value differently on each rank: same -> same; backward sums the ranks' shares."""
    return record(_value(x), (x, lambda g: comm.all_reduce(g, purpose=PURPOSE)))


def all_reduce(comm: Communicator, x: Tensor) -> Tensor:
    """Sum the ranks' values: partial -> same; its gradient is already the same everywhere."""
    return record(comm.all_reduce(x.data, purpose=PURPOSE), (x, lambda g: g))


def all_gather(comm: Communicator, x: Tensor, dim: int, counts: Counts = None) -> Tensor:
    """Join pieces to use the whole differently on each rank: piece -> same; backward sums and cuts."""
    whole = _gather(comm, x, dim, counts)
    return record(whole, (x, lambda g: _reduce_scatter(comm, g, dim, counts)))


def all_gather_alike(comm: Communicator, x: Tensor, dim: int, counts: Counts = None) -> Tensor:
    """Join pieces to do the same with the whole on every rank: piece -> same; backward cuts."""
    whole = _gather(comm, x, dim, counts)
    return record(whole, (x, lambda g: _own(comm, g, dim, counts)))


def own_slice(comm: Communicator, x: Tensor, dim: int, counts: Counts = None) -> Tensor:
    """Go on with this rank's piece of a value that all have: same -> piece; backward joins the pieces."""
    return record(_own(comm, _value(x), dim, counts), (x, lambda g: _all_gather(comm, g, dim)))


def reduce_scatter(comm: Communicator, x: Tensor, dim: int, counts: Counts = None) -> Tensor:
    """Sum the ranks' values and keep this rank's piece: partial -> piece; backward joins the pieces."""
    return record(_reduce_scatter(comm, x.data, dim, counts), (x, lambda g: _all_gather(comm, g, dim)))


def all_to_all(
    comm: Communicator, x: Tensor, i: int, j: int, held: Sequence[int], counts: Counts = None
) -> Tensor:
    """Turn pieces along dim i (held[r] on rank r) into pieces along dim j (counts[r]); backward turns them back."""
    wanted = [piece.stop - piece.start for piece in cut(x.shape[j], comm.size, counts)]
    return record(_turn(comm, x.data, i, j, held, wanted), (x, lambda g: _turn(comm, g, j, i, wanted, held)))


def broadcast(comm: Communicator, x: Tensor | None, root: int = 0) -> Tensor:
    """Give every rank the root's value (the others say None), to use it differently; backward sums on the root."""
    data = comm.broadcast(_value(x) if x is not None else None, root, purpose=PURPOSE)
    return record(data, _joining(x, lambda g: comm.reduce(g, root=root, purpose=PURPOSE)))


def reduce(comm: Communicator, x: Tensor, root: int = 0) -> Tensor:
    """Give the root the sum of the ranks' values, and the others a *stub*; backward tells all its gradient.

    A stub is a 0-d zero which stands for a value that went elsewhere: the rank calls backward on it, or on its own part
    of the loss plus the stub, and so joins in what the other ranks' backward needs of it.
    """
    total = comm.reduce(x.data, root=root, purpose=PURPOSE)

    def gradient(g: np.ndarray) -> np.ndarray:
        return comm.broadcast(g if comm.rank == root else None, root, purpose=PURPOSE)

    return record(np.zeros((), x.dtype) if total is None else total, (x, gradient))


def send(comm: Communicator, x: Tensor, dest: int, tag: int = 0) -> Tensor:
    """Let another rank go on with a value, which calls `receive`; give a stub for it (see `reduce`)."""
    comm.send(x.data, dest, tag, purpose=PURPOSE)
    shape, dtype = x.shape, x.dtype

    def gradient(g: np.ndarray) -> np.ndarray:
        returned = np.empty(shape, dtype)
        comm.recv(returned, dest, tag, purpose=PURPOSE)
        return returned

    return record(np.zeros((), dtype), _joining(x, gradient))


def receive(comm: Communicator, shape: tuple[int, ...], dtype: Any, source: int, tag: int = 0) -> Tensor:
    """Go on with a value that another rank sends; backward sends its gradient back."""
    data = np.empty(shape, dtype)
    comm.recv(data, source, tag, purpose=PURPOSE)
    return record(data, _joining(None, lambda g: comm.send(g, source, tag, purpose=PURPOSE)))


def _joining(x: Tensor | None, gradient: Callable[[Any], Any]) -> tuple[Tensor, Callable[[Any], Any]]:
    """Let backward come by even where no input needs a gradient, for another rank waits for this one there."""
    if x is not None and x.requires_grad:
        return x, gradient
    nothing = np.zeros(())

    def join(g: np.ndarray) -> np.ndarray:
        gradient(g)
        return nothing

    return Tensor(nothing, requires_grad=True), join


def _value(x: Tensor) -> np.ndarray:
    """Give the array of a value; of a parameter a copy, because an update would change its own."""
    return x.data.copy() if isinstance(x, Parameter) else x.data


# The collectives of `communicator.py` cut and join along axis 0; these along any dim. Results are in C order, so that
# a reshape behind them copies nothing.


def _all_gather(comm: Communicator, piece: np.ndarray, dim: int) -> np.ndarray:
    whole = comm.all_gather(np.moveaxis(piece, dim, 0), purpose=PURPOSE)
    return np.ascontiguousarray(np.moveaxis(whole, 0, dim))


def _reduce_scatter(comm: Communicator, whole: np.ndarray, dim: int, counts: Counts) -> np.ndarray:
    piece = comm.reduce_scatter(np.moveaxis(whole, dim, 0), counts=counts, purpose=PURPOSE)
    return np.ascontiguousarray(np.moveaxis(piece, 0, dim))


def _own(comm: Communicator, whole: np.ndarray, dim: int, counts: Counts) -> np.ndarray:
    piece = cut(whole.shape[dim], comm.size, counts)[comm.rank]
    return np.ascontiguousarray(np.moveaxis(np.moveaxis(whole, dim, 0)[piece], 0, dim))


def _gather(comm: Communicator, x: Tensor, dim: int, counts: Counts) -> np.ndarray:
    """Join pieces, and refuse those that backward would cut elsewhere."""
    whole = _all_gather(comm, x.data, dim)
    piece = cut(whole.shape[dim], comm.size, counts)[comm.rank]
    if piece.stop - piece.start != x.shape[dim]:
        raise ValueError(
            f"rank {comm.rank} gave {x.shape[dim]} of {whole.shape[dim]} indices of dim {dim}, expected "
            f"{piece.stop - piece.start}: pieces that are not as equal as can be need counts, one for each rank"
        )
    return whole


def _turn(
    comm: Communicator, x: np.ndarray, i: int, j: int, held: Sequence[int], wanted: Sequence[int]
) -> np.ndarray:
    """Send piece r along j to rank r, and join what comes along i. Blocks of different shapes travel as plain rows."""
    blocks = np.split(x, np.cumsum(wanted)[:-1], axis=j)
    sizes = [block.size for block in blocks]
    came = comm.all_to_all(np.concatenate([block.ravel() for block in blocks]), sizes, purpose=PURPOSE)
    shapes = []
    for count in held:
        shape = list(x.shape)
        shape[i], shape[j] = count, wanted[comm.rank]
        shapes.append(tuple(shape))
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return np.concatenate(
        [flat.reshape(shape) for flat, shape in zip(np.split(came, ends[:-1]), shapes, strict=True)], axis=i
    )
