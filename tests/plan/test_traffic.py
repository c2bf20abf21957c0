"""The cost of every collective on paper is what the counters count, on every rank."""

from collections.abc import Callable

import numpy as np
import pytest

from minidist.comm import Communicator
from minidist.plan import traffic
from minidist.plan.traffic import Traffic


def counted(comm: Communicator, act: Callable[[], object]) -> Traffic:
    before = comm.counters["user"]
    act()
    after = comm.counters["user"]
    return Traffic(after[0] - before[0], after[1] - before[1])


@pytest.mark.parametrize("n", [1, 7, 4096, 1 << 18])
@pytest.mark.ranks(1, 2, 3, 4, 5, 7, transports=("threads",))
def test_all_reduce(comm: Communicator, n: int) -> None:
    x = np.ones(n)
    for algorithm in (None, "naive", "tree", "recursive_doubling", "ring"):
        expected = traffic.all_reduce(n, 8, comm.rank, comm.size, algorithm)
        got = counted(comm, lambda algorithm=algorithm: comm.all_reduce(x, algorithm=algorithm))
        assert (algorithm, got) == (algorithm, expected)
    shared = comm.allocate_shared(n)
    expected = traffic.all_reduce(n, 8, comm.rank, comm.size, "shared")
    assert counted(comm, lambda: comm.all_reduce(shared, out=shared)) == expected


@pytest.mark.ranks(1, 2, 3, 4, 5, 7, transports=("threads",))
def test_the_other_collectives(comm: Communicator) -> None:
    rank, size = comm.rank, comm.size
    x = np.ones((11, 3))
    pieces = [24 * rows for rows in traffic.even(11, size)]
    mine = np.ones(rank + 1)
    root = size - 1
    cases = {
        "broadcast": (lambda: comm.broadcast(x, root), traffic.broadcast(x.nbytes, rank, size, root)),
        "reduce": (lambda: comm.reduce(x, root=root), traffic.reduce(x.nbytes, rank, size, root)),
        "gather": (lambda: comm.gather(x, root), traffic.gather(x.nbytes, rank, root)),
        "all_gather": (
            lambda: comm.all_gather(mine),
            traffic.all_gather([8 * (r + 1) for r in range(size)], rank),
        ),
        "reduce_scatter": (lambda: comm.reduce_scatter(x), traffic.reduce_scatter(pieces, rank)),
        "all_to_all": (lambda: comm.all_to_all(x), traffic.all_to_all(pieces, rank)),
        "barrier": (comm.barrier, traffic.barrier(size)),
    }
    for name, (act, expected) in cases.items():
        assert (name, counted(comm, act)) == (name, expected)
