"""Counter-based random numbers: any part of a stream can be drawn by itself."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minidist import random


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2**40), st.sampled_from(["normal", "uniform"]))
def test_any_range_of_a_stream_is_a_slice_of_the_whole(a: int, b: int, seed: int, kind: str) -> None:
    start, stop = sorted((a, b))
    draw = getattr(random, kind)
    np.testing.assert_array_equal(draw(seed, "x", 3, start, stop), draw(seed, "x", 3, 0, 60)[start:stop])


def test_seed_purpose_and_step_each_make_another_stream() -> None:
    streams = [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1)]
    values = [tuple(random.uniform(*stream, 0, 4)) for stream in streams]
    assert len(set(values)) == 4


def test_values_are_uniform_and_normal() -> None:
    u = random.uniform(0, "u", 0, 0, 200_000)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 3e-3
    z = random.normal(0, "z", 0, 0, 200_000)
    assert abs(z.mean()) < 0.01
    assert abs(z.std() - 1) < 0.01
    assert abs((z**4).mean() - 3) < 0.1  # the fourth moment of a normal distribution


def test_the_numbers_are_the_same_on_every_machine_and_in_every_version() -> None:
    np.testing.assert_array_equal(random.permutation(7, "shuffle", 2, 6), [5, 1, 3, 2, 0, 4])
    np.testing.assert_allclose(random.uniform(7, "u", 0, 0, 2), [0.07464297, 0.62564468], atol=1e-8)
    np.testing.assert_allclose(random.normal(7, "z", 0, 0, 2), [-0.37856743, 1.60058713], atol=1e-8)


def test_a_permutation_has_every_row_once() -> None:
    assert sorted(random.permutation(1, "p", 0, 1000)) == list(range(1000))
