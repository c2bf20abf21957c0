"""Which rank reads which rows, in which order.

An epoch is a shuffle of all rows, cut into *global* batches; a global batch is shared out among the replicas,
and a replica's share may be cut again into microbatches:

    rows of the data set      0  1  2  3  4  5  6  7  8  9
    shuffled                  7  2  9  0  4 | 1  8  5  3  6         batches(n=10, batch=5, seed, epoch)
    shared by 2 ranks         7  2  9 | 0  4    first batch         share(batch, rank, size)
    in 2 microbatches         7  2 | 9          rank 0              microbatches(share, 2)

Nothing here talks to anybody. Every rank computes the same shuffle by itself from (seed, epoch), and takes
its own part of it. So the batches do not depend on the number of ranks: four ranks train on the very batches
that one process would have trained on, and that is what makes their results comparable to the last digit.

Nothing is padded or dropped either: the last batch of an epoch is shorter, shares are uneven where they must
be, and a rank may get no row at all. Who averages has to divide by the count of the whole batch, never by a
rank's own.

Read next: `minidist/sync/data_parallel.py`, which makes use of that.
"""

from collections.abc import Callable, Iterator

import numpy as np

from minidist.errors import UserError
from minidist.random import permutation

Cut = Callable[[np.ndarray, int, int], np.ndarray]  # (rows of a global batch, rank, size) -> this rank's rows


def batches(n: int, batch: int, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """Yield the global batches of one epoch: int64 row numbers of shape (batch,), the last one maybe shorter.

    Each of the rows 0 to n - 1 comes exactly once. Another epoch is another shuffle.
    """
    if batch < 1:
        raise UserError(f"the batch size is {batch}, but a batch needs at least 1 example")
    order = permutation(seed, "shuffle", epoch, n)
    for start in range(0, n, batch):
        yield order[start : start + batch]


def share(rows: np.ndarray, rank: int, size: int) -> np.ndarray:
    """Take rank's consecutive part of a global batch.

    Parts differ by at most one row, the first ranks have the longer ones: 5 rows on 3 ranks are 2, 2 and 1.
    With fewer rows than ranks the last ranks get an empty array.
    """
    return np.array_split(rows, size)[rank]


def microbatches(rows: np.ndarray, count: int) -> list[np.ndarray]:
    """Cut a rank's rows (or its inputs, or labels) into `count` views, some of them empty if rows are too few."""
    return np.array_split(rows, count)


def read(
    n: int, batch: int, seed: int, epoch: int, rank: int, size: int, cut: Cut = share
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield, for each global batch of an epoch, this rank's rows and the number of rows of the whole batch.

    The second is what a rank divides its summed loss by. `cut` says who reads what; whatever it is, the
    ranks' parts of a batch must be all of it, each row once.
    """
    for rows in batches(n, batch, seed, epoch):
        yield cut(rows, rank, size), len(rows)
