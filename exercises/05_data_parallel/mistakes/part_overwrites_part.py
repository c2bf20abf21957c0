# loses: test_micro_batches_add_up_to_the_whole_batch, test_only_the_sum_of_all_parts_is_sent
# diagnosis: last part only
"""05 · Data parallel: ranks share the rows of a batch, and take the same step as one process with all of them.

Read README.md first. `comm` has rank, size, all_reduce(x) (the sum of all ranks' x) and broadcast(x, root), and
nothing else. Give new arrays: arguments stay as they are.
"""

import numpy as np


def mean_gradient(w, x, y):
    """Give the gradient of the mean loss over these rows; this one is done. Without a row there is no mean: NaN.

    w: (k,) weights; x: (n, k) inputs; y: (n,) targets. The loss of row i is (x[i] @ w - y[i])**2 / 2.
    """
    return x.T @ (x @ w - y) / len(y)


def my_rows(comm, n):
    """05a: Give (start, stop): which of the rows 0 ... n-1 this rank takes.

    Every row belongs to exactly one rank, ranks take them in order, and the first n % p ranks take one more.
    """
    each, more = divmod(n, comm.size)
    start = comm.rank * each + min(comm.rank, more)
    return start, start + each + (comm.rank < more)


def gradient(comm, w, x, y):
    """05b: Give the gradient of the mean loss over the rows of ALL ranks; x and y are this rank's rows.

    Ranks may have different numbers of rows, and a rank may have none. Returns the same (k,) on every rank.
    """
    mine = len(y) * mean_gradient(w, x, y) if len(y) else np.zeros_like(w)
    return comm.all_reduce(mine) / comm.all_reduce(len(y))


def accumulate(comm, w, parts):
    """05c: Give the gradient of the mean loss over all rows of all parts of all ranks.

    parts: this rank's micro-batches, a list of (x, y), each with at least one row. They may be of different sizes,
    and ranks may have different numbers of them. Calls comm.all_reduce twice at most, however many parts there are.
    """
    total = np.zeros_like(w)
    for x, y in parts:
        total = len(y) * mean_gradient(w, x, y)
    return comm.all_reduce(total) / comm.all_reduce(sum(len(y) for _, y in parts))


def train(comm, w, x, y, batch, steps, rate):
    """05d: Train from rank 0's w, and give (weights, losses).

    w: (k,), different on every rank. x, y: all rows, the same on every rank. Step s takes the rows s*batch to
    (s+1)*batch; each rank computes with its own share of them (05a). A step is w - rate * gradient.
    losses: list of the mean loss over each step's whole batch, before that step. The same on every rank.
    """
    w, losses = comm.broadcast(w.copy(), 0), []
    start, stop = my_rows(comm, batch)
    for step in range(steps):
        mine = slice(step * batch + start, step * batch + stop)
        error = x[mine] @ w - y[mine]
        losses.append(float(comm.all_reduce((error**2).sum() / 2)) / batch)
        w = w - rate * gradient(comm, w, x[mine], y[mine])
    return w, losses
