"""The sum over ranks in one pass, and the numbers by which ranks that share memory tell how far they are."""

import threading

import numpy as np
import pytest

from minidist._kernels import reference


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("n", [0, 1, 5, 16, 63, 64, 65, 1000])
def test_every_vector_becomes_the_sum_in_the_order_given(kernels, dtype, count, n):
    rng = np.random.default_rng(n)
    vectors = [(rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, n)).astype(dtype) for _ in range(count)]
    expected = vectors[0].copy()
    for vector in vectors[1:]:
        expected = expected + vector
    kernels.sum_into_all(vectors)
    for vector in vectors:
        assert vector.tobytes() == expected.tobytes()


def test_vectors_may_begin_anywhere_and_their_neighbours_stay(kernels, dtype):
    memory = np.ones((3, 100), dtype)
    kernels.sum_into_all([row[3:90] for row in memory])
    assert (memory[:, 3:90] == 3).all()
    assert (memory[:, :3] == 1).all()
    assert (memory[:, 90:] == 1).all()


def test_vectors_that_cannot_be_summed_are_refused_by_name(kernels):
    good = np.zeros(4, np.float32)
    read_only = np.zeros(4, np.float32)
    read_only.flags.writeable = False
    for error, words, vectors in (
        (ValueError, "got 0 vectors, expected 1 to 1024", []),
        (ValueError, "got 1025 vectors, expected 1 to 1024", [good] * 1025),
        (TypeError, r"vectors\[1\] has dtype int32", [good, np.zeros(4, np.int32)]),
        (TypeError, r"vectors\[1\] is float64", [good, np.zeros(4)]),
        (ValueError, r"vectors\[1\] has shape \(3,\)", [good, good[:3]]),
        (ValueError, r"vectors\[1\] has shape \(2, 2\)", [good, np.zeros((2, 2), np.float32)]),
        (ValueError, r"vectors\[1\] is written", [good, np.zeros(8, np.float32)[::2]]),
        (ValueError, r"vectors\[1\] is written", [good, read_only]),
    ):
        with pytest.raises(error, match=words):
            kernels.sum_into_all(vectors)


def test_what_is_written_before_a_number_is_seen_by_whoever_sees_the_number(kernels):
    numbers, data = np.zeros(8, np.int64), np.zeros(1000)

    def writer():
        for step in range(1, 200):
            data[...] = step
            kernels.store_release(numbers, 1, step)
            while not kernels.has_reached(numbers, 3, step):
                pass

    thread = threading.Thread(target=writer)
    thread.start()
    for step in range(1, 200):
        while not kernels.has_reached(numbers, 1, step, 50):
            pass
        assert (data == step).all()
        kernels.store_release(numbers, 3, step)
    thread.join()


def meeting(dtype, n):
    """Memory of 3 ranks, each with a line of numbers and a vector."""
    memory = np.zeros((3, 64 + 8 * n), np.uint8)
    parts = memory[:, 64:].view(dtype)[:, :n]
    parts[...] = [[1], [2], [4]]
    return memory[:, :64].view(np.int64), parts


@pytest.mark.parametrize("n", [0, 1, 65])
def test_one_call_meets_sums_and_meets_again_as_far_as_the_others_are(kernels, dtype, n):
    lines, parts = meeting(dtype, n)
    told = np.array([7, 8, 9])
    assert kernels.meet_and_sum(lines, 1, 5, told, parts, 3) == reference.MEETING
    assert lines[1].tolist() == [5, 0, 7, 8, 9, 0, 0, 0]
    assert (parts[2] == 4).all()
    lines[[0, 2], 0] = 5, 6  # the others are ready
    assert kernels.meet_and_sum(lines, 1, 5, told, parts, 3) == reference.UNLIKE
    assert (lines[1, 1], (parts[2] == 4).all()) == (0, True)
    lines[:, 2:5] = told
    assert kernels.meet_and_sum(lines, 1, 5, told, parts, 3) == reference.SUMMED
    assert lines[:, 1].tolist() == [0, 5, 0]
    assert (parts == 7).all()
    lines[[0, 2], 1] = 5
    assert kernels.meet_and_sum(lines, 1, 5, told, parts, 3) == reference.COMPLETE
    assert (parts == 21).all()


def test_ranks_that_meet_in_threads_sum_step_after_step(kernels, dtype):
    lines, parts = meeting(dtype, 1000)
    pieces = [parts[:, cut] for cut in (slice(0, 300), slice(300, 700), slice(700, None))]

    def rank(me):
        for step in range(1, 50):
            parts[me] = step + me
            stage = reference.MEETING
            while stage == reference.MEETING:
                stage = kernels.meet_and_sum(lines, me, 2 * step - 1, np.array([step]), pieces[me], 100)
            while stage == reference.SUMMED and not all(
                kernels.has_reached(line, 1, 2 * step - 1) for line in lines
            ):
                pass
            good[me] += bool((parts[me] == 3 * step + 3).all())

    good = [0, 0, 0]
    threads = [threading.Thread(target=rank, args=(me,)) for me in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert good == [49, 49, 49]


def test_ranks_cannot_meet_by_what_does_not_fit(kernels):
    lines, parts = meeting(np.float32, 4)
    told = np.zeros(3, np.int64)
    for error, words, arguments in (
        (TypeError, "lines and told of int64", (lines.astype(np.int32), 0, 1, told, parts, 1)),
        (TypeError, "lines and told of int64", (lines, 0, 1, np.zeros(3), parts, 1)),
        (TypeError, r"vectors\[0\] has dtype int32", (lines, 0, 1, told, parts.astype(np.int32), 1)),
        (ValueError, "a line for each part", (lines[:2], 0, 1, told, parts, 1)),
        (ValueError, "a line for each part", (lines, 0, 1, np.zeros(7, np.int64), parts, 1)),
        (ValueError, r"vectors\[0\] is written", (lines, 0, 1, told, parts[:, ::2], 1)),
        (IndexError, "rank 3 is out of range, there are 3 parts", (lines, 3, 1, told, parts, 1)),
    ):
        with pytest.raises(error, match=words):
            kernels.meet_and_sum(*arguments)
    assert not lines.any()


def test_an_address_is_that_of_the_first_number(kernels):
    x = np.zeros((4, 4), np.int32)
    assert kernels.address_of(x[1:, 2]) - kernels.address_of(x) == 24
    assert kernels.address_of(x) == x.ctypes.data


def test_numbers_that_are_none_are_refused(kernels):
    for bad in (
        np.zeros(4),
        np.zeros(4, np.int32),
        np.zeros((2, 2), np.int64),
        np.zeros(8, np.int64)[::2],
        [0],
    ):
        with pytest.raises(TypeError, match="expected a contiguous row of int64"):
            kernels.has_reached(bad, 0, 1)
    read_only = np.zeros(4, np.int64)
    read_only.flags.writeable = False
    with pytest.raises(TypeError, match="row of int64, writable"):
        kernels.store_release(read_only, 0, 1)
    assert kernels.has_reached(read_only, 3, 0)
    assert not kernels.has_reached(read_only, 3, 1, 10)
    for place in (-1, 4):
        with pytest.raises(IndexError, match=f"place {place} is out of range, numbers has 4"):
            kernels.has_reached(np.zeros(4, np.int64), place, 0)


def test_ranks_that_take_turns_sum_through_a_scratch_step_by_step(kernels, dtype):
    lines, scratch, told = np.zeros((3, 8), np.int64), np.zeros((3, 2 * 96), dtype), np.array([7, 8])
    for number, n in ((100, 0), (200, 1), (300, 96), (400, 500)):
        given = [np.random.default_rng(rank).normal(size=n).astype(dtype) for rank in range(3)]
        expected = given[0] + given[1] + given[2]
        results = [np.zeros(n, dtype), given[1], np.zeros(n, dtype)]  # rank 1 sums in place
        for step in range(-(-n // 96) + 2):
            for rank in range(3):
                x, out = given[rank], results[rank]
                assert kernels.sum_staged(lines, rank, number, told, scratch, x, out, step, 0) == step
            assert lines[:, 0].tolist() == [number + step] * 3
        assert [result.tobytes() for result in results] == [expected.tobytes()] * 3


def test_ranks_that_were_told_something_else_sum_nothing(kernels, dtype):
    lines, scratch = np.zeros((2, 8), np.int64), np.zeros((2, 64), dtype)
    x, out = np.ones(40, dtype), np.zeros(40, dtype)
    assert kernels.sum_staged(lines, 0, 10, np.array([1]), scratch, x, out, 0, 1) == 0
    lines[1, [0, 2]] = 99, 2
    assert kernels.sum_staged(lines, 0, 10, np.array([1]), scratch, x, out, 1, 1) == -1
    assert not out.any()
    lines[1, 2] = 1
    assert kernels.sum_staged(lines, 0, 10, np.array([1]), scratch, x, out, 1, 1) == 4


def test_what_cannot_be_summed_through_a_scratch_is_refused(kernels):
    lines, scratch, told = np.zeros((2, 8), np.int64), np.zeros((2, 64), np.float32), np.zeros(1, np.int64)
    x, out = np.zeros(9, np.float32), np.zeros(9, np.float32)
    fixed = np.zeros(9, np.float32)
    fixed.flags.writeable = False
    for error, words, arguments in (
        (ValueError, "x is float64", (lines, 0, 1, told, scratch, np.zeros(9), out, 0, 1)),
        (ValueError, r"out is float32 \(8,\)", (lines, 0, 1, told, scratch, x, out[:8], 0, 1)),
        (ValueError, "out is written", (lines, 0, 1, told, scratch, x, fixed, 0, 1)),
        (ValueError, "two blocks of whole cache lines", (lines, 0, 1, told, scratch[:, :40], x, out, 0, 1)),
        (IndexError, "step is -1", (lines, 0, 1, told, scratch, x, out, -1, 1)),
        (IndexError, "rank 2 is out of range", (lines, 2, 1, told, scratch, x, out, 0, 1)),
    ):
        with pytest.raises(error, match=words):
            kernels.sum_staged(*arguments)
