"""The loss and the choice of a class where each tensor rank has some columns of the logits: nobody ever has them all.

    logits      rank 0 [ 0 .. 48 ]     rank 1 [ 49 .. 96 ]       of each example
    largest            max                    max                --> all-reduce (max), one number per example
    sum of exp         sum                    sum                --> all-reduce, two numbers per example,
    label's logit      -                      4.2                    for the label is with one of the ranks

Loss = log(sum of exp) - label's logit, both relative to the largest (Shoeybi et al. 2019, section 3, the last paragraph
on the embedding). Backward sends nothing: softmax - one-hot, column by column. A step sends three numbers per target
where gathering the logits would take a whole vocabulary of them.

Every rank of the replica calls backward on the one loss, and the tensor rank 0 *reports* it: the others give 0.0, so
the shares of all ranks sum to the replica's loss. Read next: `tensor_parallel.py`.
"""

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd import Tensor, record
from minidist.comm import Communicator
from minidist.comm.on_tape import PURPOSE


def split_cross_entropy(
    comm: Communicator, first: int, classes: int, logits: Tensor, labels: np.ndarray, count: int
) -> Tensor:
    """Sum -log softmax(logits)[label] over all examples, and divide by `count`: a 0-d tensor, 0.0 but for rank 0.

    logits: (..., c), the classes from `first` on. labels: (...) integers from 0 to classes - 1 (IndexError for others).
    """
    labels = np.array(labels).reshape(-1)  # (n,)
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise IndexError(
            f"labels are from {labels.min()} to {labels.max()}, and there are classes 0 to {classes - 1}"
        )
    x = logits.data.reshape(len(labels), -1)  # (n, c)
    # The examples whose label is a column here.
    here = np.flatnonzero((first <= labels) & (labels < first + x.shape[1]))
    columns = labels[here] - first

    with np.errstate(invalid="ignore", divide="ignore"):  # infinite logits give nan, as in one process
        largest = comm.all_reduce(kernels.max(x, axis=1), op="max", purpose=PURPOSE)  # (n,)
        shifted = x - largest[:, None]  # (n, c)
        sums = np.zeros((2, len(labels)), x.dtype)
        sums[1, here] = shifted[here, columns]
        kernels.sum(np.exp(shifted, out=shifted), axis=1, out=sums[0])
        sum_exp, at_label = comm.all_reduce(sums, purpose=PURPOSE)  # (n,), (n,)
        losses = np.log(sum_exp) - at_label
        # In float64: beside logits of 1e8, float32 would lose what tells one class from another.
        log_sums = largest.astype(np.float64) + np.log(sum_exp)
    total = np.array(losses.sum() / count if comm.rank == 0 else 0.0, x.dtype)

    def gradient(g: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            dx = np.exp((x - log_sums[:, None]).astype(x.dtype))  # softmax, of the columns here
        dx[here, columns] -= 1
        dx *= g / count
        return dx.reshape(logits_shape)

    logits_shape = logits.shape
    return record(total, (logits, gradient))


def reported_once(comm: Communicator, loss: Tensor) -> Tensor:
    """Give a loss that all ranks have computed the value 0 but for rank 0; its gradient stays."""
    return record(loss.data if comm.rank == 0 else np.zeros_like(loss.data), (loss, lambda g: g))


def split_argmax(comm: Communicator, first: int, logits: Tensor) -> np.ndarray:
    """Find the largest logit of each target, the first of equal ones: (..., c) -> (...) on every rank.

    Each rank sends its own largest and where that is: two numbers per target.
    """
    place = kernels.argmax(logits.data, axis=-1)
    largest = np.take_along_axis(logits.data, place[..., None], -1)[..., 0]
    candidates = comm.all_gather(largest[None], purpose=PURPOSE)  # (ranks, ...)
    places = comm.all_gather(first + place[None], purpose=PURPOSE)  # (ranks, ...)
    winner = candidates.argmax(axis=0)[None]  # the first rank's classes come first
    return np.take_along_axis(places, winner, 0)[0]
