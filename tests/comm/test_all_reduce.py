"""All-reduce from scratch: the same bytes everywhere, and the costs that the docstrings promise."""

import math

import numpy as np
import pytest

from minidist.comm.all_reduce import ALGORITHMS, RING_FROM, RING_FROM_BETWEEN_MACHINES, choose
from minidist.comm.threads import run_ranks

LENGTHS = (0, 1, 2, 3, 4, 5, 7, 16, 1000, 4099)


def integers(rank, length, dtype=np.float64):
    """Whole numbers, whose sums are exact in any order."""
    return (np.arange(length) % 17 + rank).astype(dtype)


def test_the_way_is_chosen_by_size_alone():
    assert choose(0) == choose(RING_FROM - 1) == "recursive_doubling"
    assert choose(RING_FROM_BETWEEN_MACHINES - 1, machines=2) == "recursive_doubling"
    assert choose(RING_FROM_BETWEEN_MACHINES, machines=2) == "ring"
    assert choose(RING_FROM) == choose(10 * RING_FROM) == "ring"


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, None])
def test_every_way_sums_vectors_of_any_length(comm, algorithm):
    for length in LENGTHS:
        x = integers(comm.rank, length)
        total = comm.all_reduce(x, algorithm=algorithm)
        np.testing.assert_array_equal(total, sum(integers(rank, length) for rank in range(comm.size)))
        np.testing.assert_array_equal(x, integers(comm.rank, length))


@pytest.mark.ranks(1, 2, 3, 4, transports=("mpi",))
def test_mpis_own_all_reduce_is_an_option(comm):
    for length in LENGTHS:
        total = comm.all_reduce(integers(comm.rank, length), algorithm="mpi")
        np.testing.assert_array_equal(total, sum(integers(rank, length) for rank in range(comm.size)))
    assert comm.all_reduce(comm.rank == 0, "max", algorithm="mpi").dtype == bool


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_rank_ends_with_the_same_bytes(comm, algorithm):
    x = np.random.default_rng(comm.rank).normal(size=1001) * 10.0 ** np.arange(-5, 5).repeat(101)[:1001]
    x[:4] = [0.0, -0.0, np.nan, np.inf] if comm.rank % 2 else [-0.0, 0.0, -np.nan, -np.inf]
    for op in ("sum", "prod", "max", "min"):
        with np.errstate(invalid="ignore"):
            result = comm.all_reduce(x, op, algorithm=algorithm)
        for row in comm.all_gather(result[None]):
            assert row.tobytes() == result.tobytes()


@pytest.mark.ranks(2, 3, 4)
def test_naive_sums_in_rank_order(comm):
    values = [1e16, 1.0, -1e16, 3.0]
    in_order = np.float64(values[0])
    for value in values[1 : comm.size]:
        in_order += value
    assert comm.all_reduce(values[comm.rank], algorithm="naive") == in_order


@pytest.mark.ranks(1, 2, 3, 4)
def test_dtypes_are_kept(comm):
    for dtype in ("i1", "u1", "i4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"):
        total = comm.all_reduce(integers(comm.rank, 9, dtype))
        assert total.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(total, sum(integers(rank, 9, "i8") for rank in range(comm.size)))


@pytest.mark.ranks(4)
def test_float16_is_summed_in_float32(comm):
    x = np.array([2048.0 if comm.rank == 0 else 1.0], np.float16)  # in float16 2048 + 1 is 2048
    assert comm.all_reduce(x)[0] == np.float16(2051.0)
    assert comm.all_reduce(np.array([50000.0 * (-1) ** comm.rank], np.float16)).dtype == np.float16
    assert comm.reduce_scatter(np.repeat(x, 4))[0] == np.float16(2051.0)
    total = comm.reduce(x)
    assert total is None if comm.rank else total[0] == np.float16(2051.0)


@pytest.mark.ranks(1, 2, 3, 4)
def test_memory_order_may_differ_between_ranks(comm):
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    mine = np.asfortranarray(x) if comm.rank % 2 else x
    np.testing.assert_array_equal(comm.all_reduce(mine), x * comm.size)
    strided = np.arange(20.0)[::-2]
    total = comm.all_reduce(strided if comm.rank % 2 else strided.copy())
    np.testing.assert_array_equal(total, strided * comm.size)


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, None])
def test_out_may_be_x_or_overlap_it_or_have_any_memory_order(comm, algorithm):
    x = integers(comm.rank, 12)
    expected = sum(integers(rank, 12) for rank in range(comm.size))
    assert comm.all_reduce(x, out=x, algorithm=algorithm) is x
    np.testing.assert_array_equal(x, expected)

    memory = np.concatenate([integers(comm.rank, 12), np.zeros(1)])
    comm.all_reduce(memory[:12], out=memory[1:], algorithm=algorithm)
    np.testing.assert_array_equal(memory[1:], expected)

    for out in (
        np.empty((3, 4), order="F"),
        np.empty((4, 3)).T,
        np.empty((3, 8))[:, ::2],
        np.empty((3, 4), ">f8"),
    ):
        result = comm.all_reduce(integers(comm.rank, 12).reshape(3, 4), out=out, algorithm=algorithm)
        assert result is out
        np.testing.assert_array_equal(out, expected.reshape(3, 4))


@pytest.mark.ranks(1, 2, 4)
def test_shape_and_value_of_scalars_are_kept(comm):
    total = comm.all_reduce(np.array(1.5, np.float32))
    assert (total.shape, total.dtype) == ((), np.float32)
    assert total == 1.5 * comm.size
    assert comm.all_reduce(2).dtype == np.int64
    assert comm.all_reduce([1.0, 2.0]).tolist() == [comm.size, 2.0 * comm.size]
    assert comm.all_reduce(np.empty((0, 3))).shape == (0, 3)


@pytest.mark.ranks(1, 2)
def test_what_cannot_be_reduced_is_refused_before_anything_is_sent(comm):
    before = comm.counters
    refusals = [
        (TypeError, "any rank", lambda: comm.all_reduce(np.array([True]))),
        (TypeError, "no order", lambda: comm.all_reduce(1j, "max")),
        (ValueError, "'sum', 'prod', 'max', 'min'", lambda: comm.all_reduce(1.0, "mean")),
        (ValueError, "recursive_doubling", lambda: comm.all_reduce(1.0, algorithm="fast")),
        (ValueError, "read-only", lambda: comm.all_reduce(np.ones(2), out=np.broadcast_to(0.0, 2))),
        (
            ValueError,
            r"out is float32 \(2,\), expected float64 \(3,\)",
            lambda: comm.all_reduce(np.ones(3), out=np.ones(2, "f4")),
        ),
        (ValueError, "purpose is 'fun'", lambda: comm.all_reduce(1.0, purpose="fun")),
    ]
    for kind, words, call in refusals:
        with pytest.raises(kind, match=words):
            call()
    assert comm.counters == before
    assert comm.all_reduce(np.array([comm.rank == 0]), "max").tolist() == [True]


def test_mpis_own_is_refused_on_threads():
    with pytest.raises(ValueError, match="needs MPI"):
        run_ranks(lambda comm: comm.all_reduce(1.0, algorithm="mpi"), 2)


# ---------------------------------------------------------------- costs, as the docstrings state them


def costs(algorithm, size, length):
    """Messages and bytes that each rank sends, from the counters."""

    def on_rank(comm):
        comm.all_reduce(np.ones(length, np.float32), algorithm=algorithm, purpose="gradient")
        return comm.counters["gradient"]

    return run_ranks(on_rank, size)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8])
def test_costs_of_naive(size):
    n = 4 * 60
    assert costs("naive", size, 60) == [(size - 1, (size - 1) * n)] + [(1, n)] * (size - 1)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8])
def test_costs_of_the_tree(size):
    n, sent = 4 * 60, costs("tree", size, 60)
    assert sum(messages for messages, _ in sent) == 2 * (size - 1)
    assert sum(nbytes for _, nbytes in sent) == 2 * (size - 1) * n
    assert sent[0] == (math.ceil(math.log2(size)), math.ceil(math.log2(size)) * n)
    assert (
        max(sent) == max(sent[0], (0, 0)) if size < 4 else max(messages for messages, _ in sent) <= sent[0][0]
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8])
def test_costs_of_recursive_doubling(size):
    n, sent = 4 * 60, costs("recursive_doubling", size, 60)
    power = 2 ** int(math.log2(size))
    assert sum(messages for messages, _ in sent) == power * int(math.log2(power)) + 2 * (size - power)
    assert max(messages for messages, _ in sent) == int(math.log2(power)) + (size > power)
    assert all(nbytes == messages * n for messages, nbytes in sent)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 8])
def test_costs_of_the_ring(size):
    length = 120  # a multiple of all these sizes
    nbytes = 2 * (size - 1) * 4 * length // size
    assert costs("ring", size, length) == [(2 * (size - 1), nbytes)] * size


@pytest.mark.parametrize("length", [0, 1, 2, 3, 11])
def test_the_ring_sends_each_number_2_p_minus_1_times_also_when_it_does_not_divide(length):
    sent = costs("ring", 4, length)
    assert [messages for messages, _ in sent] == [6] * 4
    assert sum(nbytes for _, nbytes in sent) == 2 * 3 * 4 * length
