"""The sum over ranks in one pass, and the numbers by which ranks that share memory tell how far they are."""

import threading

import numpy as np
import pytest


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
