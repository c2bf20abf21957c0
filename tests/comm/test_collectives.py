"""The other collectives: by value, for uneven pieces, scalars and nothing at all; and their costs."""

import math

import numpy as np
import pytest

from minidist.comm import CommError, MessageMismatch, RankStopped
from minidist.comm.threads import run_ranks


def rows(rank, count, dtype=np.float64):
    """`count` rows that say whose they are: (count, 2)."""
    return np.full((count, 2), rank, dtype)


@pytest.mark.ranks(1, 2, 3, 4)
def test_broadcast_fills_a_given_array_and_gives_it_back(comm):
    for length in (0, 1, 5, 3000):
        for root in range(comm.size):
            x = np.arange(length) + 1.0 if comm.rank == root else np.zeros(length)
            assert comm.broadcast(x, root) is x
            np.testing.assert_array_equal(x, np.arange(length) + 1.0)


@pytest.mark.ranks(1, 2, 3, 4)
def test_broadcast_gives_a_new_array_where_none_was_given(comm):
    root = comm.size - 1
    x = comm.broadcast(np.arange(6, dtype=np.int16).reshape(2, 3) if comm.rank == root else None, root)
    assert (x.dtype, x.tolist()) == (np.int16, [[0, 1, 2], [3, 4, 5]])
    scalar = comm.broadcast(2.5 if comm.rank == root else 0, root)
    assert (scalar.shape, float(scalar)) == ((), 2.5)


@pytest.mark.ranks(2, 3, 4)
def test_broadcast_into_any_memory_order(comm):
    x = np.arange(5000.0).reshape(50, 100)
    for given in (np.zeros((50, 100), order="F"), np.zeros((50, 200))[:, ::2], np.zeros((50, 100), ">f8")):
        mine = np.asfortranarray(x) if comm.rank == 0 else given
        assert comm.broadcast(mine) is mine
        np.testing.assert_array_equal(mine, x)


@pytest.mark.ranks(2, 4)
def test_broadcast_refuses_a_wrong_or_read_only_array(comm):
    if comm.rank == 0:
        comm.broadcast(np.ones(3))
    else:
        given = np.zeros(3, np.float32)
        with pytest.raises(MessageMismatch, match=r"float64 \(3,\).*float32 \(3,\)"):
            comm.broadcast(given)
        assert given.tolist() == [0, 0, 0]
        with pytest.raises(ValueError, match="read-only"):
            comm.broadcast(np.broadcast_to(0.0, 3), root=0)


@pytest.mark.ranks(1, 2, 3, 4)
def test_reduce_gives_the_root_the_result_and_others_none(comm):
    for root in range(comm.size):
        for op, expected in (("sum", comm.size * (comm.size + 1) / 2), ("max", comm.size), ("min", 1)):
            x = np.full((2, 3), comm.rank + 1.0)
            result = comm.reduce(x, op, root)
            if comm.rank == root:
                np.testing.assert_array_equal(result, np.full((2, 3), expected))
            else:
                assert result is None
            np.testing.assert_array_equal(x, np.full((2, 3), comm.rank + 1.0))


@pytest.mark.ranks(1, 2, 3, 4)
def test_gather_joins_uneven_pieces_on_the_root(comm):
    for root in range(comm.size):
        result = comm.gather(rows(comm.rank, comm.rank), root)  # rank 0 gives no rows at all
        expected = np.concatenate([rows(rank, rank) for rank in range(comm.size)])
        assert result is None if comm.rank != root else np.array_equal(result, expected)


@pytest.mark.ranks(1, 2, 3, 4)
def test_all_gather_joins_even_and_uneven_pieces(comm):
    for counts in ([3, 3, 3, 3], [0, 1, 2, 3], [5, 0, 0, 2000], [0, 0, 0, 0]):
        result = comm.all_gather(rows(comm.rank, counts[comm.rank], np.float32))
        expected = np.concatenate([rows(rank, counts[rank], np.float32) for rank in range(comm.size)])
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, expected)


@pytest.mark.ranks(1, 2, 3, 4)
def test_a_scalar_is_one_row_of_what_is_gathered(comm):
    assert comm.all_gather(comm.rank).tolist() == list(range(comm.size))
    gathered = comm.gather(float(comm.rank))
    assert gathered is None if comm.rank else gathered.tolist() == list(range(comm.size))


@pytest.mark.ranks(2, 3)
def test_pieces_that_do_not_fit_together_are_refused_on_every_rank(comm):
    with pytest.raises(MessageMismatch, match=r"rank 0 gave float64 \(2, 2\), rank 1 gave float32 \(2, 2\)"):
        comm.all_gather(rows(comm.rank, 2, np.float32 if comm.rank else np.float64))
    with pytest.raises(MessageMismatch, match=r"rank 1 gave float64 \(3,\)"):
        comm.all_gather(np.ones(3) if comm.rank == 1 else np.ones((3, 2)))
    assert comm.all_gather(comm.rank).tolist() == list(range(comm.size))


@pytest.mark.ranks(1, 2, 3, 4)
def test_scatter_cuts_along_axis_0(comm):
    x = np.arange(20.0).reshape(10, 2)
    for root in range(comm.size):
        piece = comm.scatter(x if comm.rank == root else None, root)
        np.testing.assert_array_equal(piece, np.array_split(x, comm.size)[comm.rank])
    counts = [0, 7, 1, 2][: comm.size]
    counts[-1] += 10 - sum(counts)
    piece = comm.scatter(np.asfortranarray(x) if comm.rank == 0 else None, counts=counts)
    np.testing.assert_array_equal(piece, np.split(x, np.cumsum(counts)[:-1])[comm.rank])


@pytest.mark.ranks(1, 2, 3, 4)
def test_reduce_scatter_gives_each_rank_its_piece_of_the_sum(comm):
    for length in (0, 1, 3, 10, 3000):
        x = np.arange(2 * length, dtype=np.float64).reshape(length, 2) * (comm.rank + 1)
        total = np.arange(2 * length, dtype=np.float64).reshape(length, 2) * comm.size * (comm.size + 1) / 2
        piece = comm.reduce_scatter(x)
        np.testing.assert_array_equal(piece, np.array_split(total, comm.size)[comm.rank])
        assert np.array_equal(x, np.arange(2 * length).reshape(length, 2) * (comm.rank + 1))
    counts = [1] * (comm.size - 1) + [11 - comm.size]
    piece = comm.reduce_scatter(np.arange(10), "max", counts)
    assert piece.tolist() == np.split(np.arange(10), np.cumsum(counts)[:-1])[comm.rank].tolist()


@pytest.mark.ranks(1, 2, 3, 4)
def test_all_to_all_exchanges_even_and_uneven_pieces(comm):
    x = np.repeat(np.arange(comm.size), 2) + 10 * comm.rank
    assert comm.all_to_all(x).tolist() == [
        comm.rank + 10 * source for source in range(comm.size) for _ in "ab"
    ]
    counts = [(comm.rank + dest) % 3 for dest in range(comm.size)]
    received = comm.all_to_all(rows(comm.rank, sum(counts)), counts)
    expected = np.concatenate([rows(source, (source + comm.rank) % 3) for source in range(comm.size)])
    np.testing.assert_array_equal(received, expected)


@pytest.mark.ranks(1, 3)
def test_wrong_arguments_are_refused_before_anything_is_sent(comm):
    before, n = comm.counters, comm.size
    refusals = [
        (ValueError, f"root is {n}, expected 0 to {n - 1}", lambda: comm.broadcast(1.0, root=n)),
        (ValueError, "root is -1", lambda: comm.gather(1.0, root=-1)),
        (ValueError, "whose sum is 5", lambda: comm.reduce_scatter(np.ones(5), counts=[4] * n)),
        (ValueError, "numbers >= 0", lambda: comm.all_to_all(np.ones(5), counts=[6] + [-1] * n)),
        (ValueError, "at least one dim", lambda: comm.reduce_scatter(1.0)),
        (TypeError, "masked", lambda: comm.all_gather(np.ma.masked_array([1.0, 2.0], [True, False]))),
        (TypeError, "dtype object", lambda: comm.all_gather(np.array([{}], object))),
        (TypeError, "dtype <U1", lambda: comm.all_gather("a")),
        (TypeError, "is None", lambda: comm.all_gather(None)),
    ]
    for kind, words, call in refusals:
        with pytest.raises(kind, match=words):
            call()
    assert comm.counters == before
    comm.barrier()


@pytest.mark.ranks(1, 2, 3, 4)
def test_split_forms_groups_ordered_by_key(comm):
    group = comm.split(comm.rank % 2, key=-comm.rank)
    mates = [rank for rank in range(comm.size) if rank % 2 == comm.rank % 2][::-1]
    assert (group.size, group.rank) == (len(mates), mates.index(comm.rank))
    assert group.members == tuple(comm.members[mate] for mate in mates)
    assert group.all_gather(comm.rank).tolist() == mates
    first = comm.split(None if comm.rank else 7)
    assert first is None if comm.rank else first.size == 1


@pytest.mark.ranks(2, timeout=60)
def test_three_thousand_communicators_can_be_made_one_after_the_other(comm):
    """MPI has some 2,000 at a time; those of one rank count as well, and are made sooner."""
    for number in range(3000):
        one = comm.alone("one") if number % 10 else comm.split(0)
        one.free()
    assert comm.all_reduce(1.0) == 2.0


@pytest.mark.ranks(1, 2, 3)
def test_a_freed_communicator_refuses_and_what_came_from_it_lives_on(comm):
    half = comm.split(0, name="half")
    part, numbers = half.split(0, name="part"), half.allocate_shared(4)
    half.free()
    numbers[:] = comm.rank
    assert part.all_reduce(1.0) == comm.size
    assert (numbers == comm.rank).all()
    calls = [half.barrier, half.free, lambda: half.split(0), lambda: half.isend(1.0, 0)]
    for call in [*calls, lambda: half.all_reduce(numbers, out=numbers)]:
        with pytest.raises(CommError, match="on 'half', which this program has freed"):
            call()
    part.free()
    comm.barrier()


@pytest.mark.ranks(2, 3, 4)
def test_communicators_do_not_hear_each_other(comm):
    other = comm.split(0)
    if comm.rank == 0:
        first, second = comm.isend(1.0, 1, tag=3), other.isend(2.0, 1, tag=3)
        first.wait(), second.wait()
    elif comm.rank == 1:
        out = np.zeros(())
        other.recv(out, 0, tag=3)
        assert out == 2.0
        comm.recv(out, 0, tag=3)
        assert out == 1.0


@pytest.mark.ranks(2)
def test_vectors_of_different_lengths_are_noticed_by_both_sides(comm):
    lengths = (16, 32)
    with pytest.raises(MessageMismatch) as caught:
        comm.all_reduce(np.ones(lengths[comm.rank]), algorithm="recursive_doubling")
    assert f"expected {8 * lengths[comm.rank]} bytes from rank {1 - comm.rank}, got " in str(caught.value)
    assert "do all ranks give arrays of the same shape and dtype?" in str(caught.value)
    assert str(caught.value).startswith("all_reduce #0(reduction=sum) on ")


# ---------------------------------------------------------------- costs: messages and bytes that each rank sends


def costs(call, size):
    """What each rank sends in `call(comm)`."""

    def on_rank(comm):
        call(comm)
        return comm.counters["user"]

    return run_ranks(on_rank, size)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_costs_are_those_of_the_table(size):
    n, steps = 8 * 120, math.ceil(math.log2(size))
    x = np.ones(120)
    assert costs(lambda comm: comm.barrier(), size) == [(steps, 0)] * size
    assert costs(lambda comm: comm.all_gather(x), size) == [(size - 1, (size - 1) * n)] * size
    assert costs(lambda comm: comm.reduce(x), size) == [(0, 0)] + [(1, n)] * (size - 1)
    assert costs(lambda comm: comm.gather(x), size) == [(0, 0)] + [(1, n)] * (size - 1)
    broadcast = costs(lambda comm: comm.broadcast(x.copy()), size)
    assert broadcast[0] == (steps, steps * n)
    assert sum(messages for messages, _ in broadcast) == size - 1
    piece = n // size
    all_of_them = [(size - 1, (size - 1) * piece)] * size
    assert costs(lambda comm: comm.reduce_scatter(x), size) == all_of_them
    assert costs(lambda comm: comm.all_to_all(x), size) == all_of_them
    assert costs(lambda comm: comm.scatter(x), size) == [all_of_them[0]] + [(0, 0)] * (size - 1)


@pytest.mark.ranks(1, 2, 3, 4)
def test_counters_tell_purposes_apart_and_sum_over_split_communicators(comm):
    half = comm.split(comm.rank % 2)
    before = comm.counters
    half.all_gather(np.ones(1000, np.float32), purpose="weights")
    comm.barrier(purpose="control")
    sent = {
        purpose: (m - before[purpose][0], b - before[purpose][1]) for purpose, (m, b) in comm.counters.items()
    }
    assert sent["weights"] == half.counters["weights"] == (half.size - 1, 4000 * (half.size - 1))
    assert sent["control"] == (math.ceil(math.log2(comm.size)), 0)
    assert sent["gradient"] == sent["user"] == (0, 0)


def test_the_one_that_failed_is_reported_not_those_who_waited_for_it():
    def on_rank(comm):
        if comm.rank == 2:
            raise ZeroDivisionError("rank 2's own fault")
        with pytest.raises(
            RankStopped, match="stopped because rank 2 raised ZeroDivisionError: rank 2's own"
        ):
            comm.barrier()

    with pytest.raises(ZeroDivisionError) as caught:
        run_ranks(on_rank, 3)
    assert caught.value.rank == 2


@pytest.mark.ranks(1, 2, 3, 4)
def test_all_gather_fills_memory_in_which_its_own_rows_already_lie(comm):
    for length in (0, 2, 7, 3000):
        out = np.full((length, 2), np.nan)
        mine = np.array_split(out, comm.size)[comm.rank]
        mine[...] = comm.rank
        assert comm.all_gather(mine, out=out) is out
        expected = [rows(rank, len(p)) for rank, p in enumerate(np.array_split(out, comm.size))]
        np.testing.assert_array_equal(out, np.concatenate(expected))


@pytest.mark.ranks(3)
def test_all_gather_refuses_memory_that_the_pieces_do_not_fit(comm):
    with pytest.raises(MessageMismatch, match=r"pieces are \[1, 1, 1\] rows, and out is float64 \(4, 2\)"):
        comm.all_gather(rows(comm.rank, 1), out=np.zeros((4, 2)))
    with pytest.raises(ValueError, match="out must be C-ordered"):
        comm.all_gather(rows(comm.rank, 1), out=np.zeros((3, 2), order="F"))
