"""All-reduce through a scratch: the same sums as in shared memory, for arrays of any size, and no rank left waiting."""

import numpy as np
import pytest

from minidist.comm import DeadlockError, MessageMismatch
from minidist.comm.all_reduce import RING_FROM
from minidist.comm.staged import BLOCK
from minidist.comm.threads import run_ranks
from minidist.plan import traffic


def values(rank, n, dtype):
    return np.random.default_rng(rank).normal(size=n).astype(dtype)


def in_rank_order(size, n, dtype):
    total = values(0, n, dtype)
    for rank in range(1, size):
        total = total + values(rank, n, dtype)
    return total


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_sum_is_formed_in_rank_order_and_every_rank_has_the_same_bytes(comm, dtype):
    block = BLOCK // np.dtype(dtype).itemsize
    for n in (0, 1, 5, 17, 1000, block - 1, block, block + 1, 2 * block, 3 * block + 7):
        x, expected = values(comm.rank, n, dtype), in_rank_order(comm.size, n, dtype)
        out = np.empty(n, dtype)
        assert comm.all_reduce(x, out=out, algorithm="staged") is out
        assert out.tobytes() == expected.tobytes()
        assert x.tobytes() == values(comm.rank, n, dtype).tobytes()
        assert comm.all_reduce(x, algorithm="staged").tobytes() == expected.tobytes()
        assert comm.all_reduce(x, out=x, algorithm="staged") is x
        assert x.tobytes() == expected.tobytes()


@pytest.mark.ranks(1, 2, 3)
def test_out_may_overlap_x_or_have_any_memory_order(comm):
    n = 40000
    x, expected = values(comm.rank, n, "f8"), in_rank_order(comm.size, n, "f8")
    memory = np.append(x, 0.0)
    comm.all_reduce(memory[:n], out=memory[1:], algorithm="staged")
    np.testing.assert_array_equal(memory[1:], expected)
    out = np.empty((200, 200), order="F")
    assert comm.all_reduce(x.reshape(200, 200), out=out, algorithm="staged") is out
    np.testing.assert_array_equal(out.reshape(-1), expected)


@pytest.mark.ranks(2, 3)
def test_what_is_in_flight_goes_on_beside_it_and_counts_are_those_of_the_ring(comm):
    n = RING_FROM // 8 + 5
    before = comm.counters["gradient"]
    for step in range(5):
        large = comm.iall_reduce(np.full(n, 1.0 + step))
        small = comm.iall_reduce(np.array(comm.rank))
        assert (comm.all_reduce(np.full(n, float(step)), purpose="gradient") == comm.size * step).all()
        assert small.wait() == sum(range(comm.size))
        assert (large.wait() == comm.size * (1.0 + step)).all()
    cost = traffic.all_reduce(n, 8, comm.rank, comm.size) * 5
    assert np.subtract(comm.counters["gradient"], before).tolist() == [cost.messages, cost.bytes]
    before = comm.counters["gradient"]
    comm.all_reduce(np.ones(n), algorithm="staged", purpose="gradient")
    cost = traffic.all_reduce(n, 8, comm.rank, comm.size, "staged")
    assert np.subtract(comm.counters["gradient"], before).tolist() == [cost.messages, cost.bytes]


@pytest.mark.ranks(2)
def test_ranks_that_do_not_do_the_same_are_told_and_can_go_on(comm):
    large, larger, small = RING_FROM // 8, RING_FROM // 8 + 1, 100
    comm.all_reduce(np.ones(large))
    for sizes in ((large, larger), (large, small), (small, large)):
        with pytest.raises(MessageMismatch, match="the same shape and dtype"):
            comm.all_reduce(np.ones(sizes[comm.rank]))
    assert (comm.all_reduce(np.ones(large)) == 2).all()


@pytest.mark.ranks(1, 2)
def test_what_it_is_not_for_is_refused(comm):
    for call in (
        lambda: comm.iall_reduce(np.ones(3), algorithm="staged"),
        lambda: comm.all_reduce(np.ones(3), "max", algorithm="staged"),
        lambda: comm.all_reduce(np.ones(3, np.int64), algorithm="staged"),
    ):
        with pytest.raises(ValueError, match="is for all_reduce, not iall_reduce"):
            call()


def test_a_rank_that_does_not_come_is_a_deadlock_on_threads():
    def on_rank(comm):
        comm.all_reduce(np.ones(10), algorithm="staged")
        if comm.rank == 0:
            comm.all_reduce(np.ones(10), algorithm="staged")

    with pytest.raises(DeadlockError, match="rank 1 has left"):
        run_ranks(on_rank, 2)
