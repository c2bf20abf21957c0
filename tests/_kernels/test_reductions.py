"""Sums and largest elements against NumPy, over every layout, axis and edge size."""

import math

import numpy as np
import pytest

SHAPES = [
    (),
    (0,),
    (1,),
    (7,),
    (130,),
    (3, 0),
    (0, 3),
    (1, 1),
    (5, 3),
    (3, 130),
    (200, 9),
    (70, 300),
    (2, 3, 4),
    (3, 1, 17),
    (2, 3, 2, 5),
]


def axes_of(x):
    yield None
    yield from range(-x.ndim, x.ndim)


def many_axes_of(x):
    yield from axes_of(x)
    if x.ndim >= 2:
        yield from [(0, 1), (0, -1), (-1, 0), ()]
    if x.ndim == 4:
        yield from [(1, 3), (0, 2, 3), (1, 2)]


@pytest.fixture(params=SHAPES, ids=str)
def x(request, dtype):
    return np.asarray(np.random.default_rng(0).normal(size=request.param), dtype)


def test_sum_equals_numpy_in_every_layout(kernels, layouts, x):
    for name, given in layouts(x):
        for axis in many_axes_of(x):
            for keepdims in (False, True):
                got = kernels.sum(given, axis, keepdims)
                expected = x.astype(np.float64).sum(axis=axis, keepdims=keepdims)
                assert (type(got), got.dtype, got.shape) == (np.ndarray, x.dtype, expected.shape), name
                np.testing.assert_allclose(
                    got, expected, rtol=0, atol=1e3 * np.finfo(x.dtype).eps, err_msg=name
                )


def test_sum_writes_or_adds_to_out_in_every_layout(kernels, layouts, x):
    for axis in many_axes_of(x):
        expected = x.sum(axis=axis)
        start = np.ones(expected.shape, x.dtype)
        for name, out in layouts(start):
            if name == "read-only":
                continue
            for accumulate in (False, True):
                out[...] = start
                assert kernels.sum(x, axis, out=out, accumulate=accumulate) is out
                np.testing.assert_allclose(
                    out, expected + accumulate, rtol=0, atol=1e3 * np.finfo(x.dtype).eps, err_msg=name
                )


def test_max_and_argmax_equal_numpy_in_every_layout(kernels, layouts, x):
    for name, given in layouts(x):
        for axis in many_axes_of(x):
            if x.size == 0:
                continue
            for keepdims in (False, True):
                got = kernels.max(given, axis, keepdims)
                assert type(got) is np.ndarray
                np.testing.assert_array_equal(
                    got, x.max(axis=axis, keepdims=keepdims), err_msg=name, strict=True
                )
        for axis in axes_of(x):
            if x.size:
                got = kernels.argmax(given, axis)
                assert (type(got), got.dtype) == (np.ndarray, np.int64)
                np.testing.assert_array_equal(got, x.argmax(axis=axis), err_msg=name)


def test_max_of_nothing_is_refused_and_no_max_of_nothing_is_empty(kernels, dtype):
    for reduce in (kernels.max, kernels.argmax):
        with pytest.raises(ValueError, match=r"shape \(3, 0\) has no largest element along axes \(1,\)"):
            reduce(np.ones((3, 0), dtype), 1)
        with pytest.raises(ValueError, match="no largest element"):
            reduce(np.ones((3, 0), dtype))
        assert reduce(np.ones((3, 0), dtype), 0).shape == (0,)


@pytest.mark.parametrize("length", [1, 5, 16, 40, 2000, 5000])
def test_nan_is_the_largest_and_the_first_counts(kernels, dtype, length):
    for place in {0, 1, length // 2, length - 1} - {length}:
        if place >= length:
            continue
        x = np.arange(length, dtype=dtype)
        x[place] = np.nan
        assert np.isnan(kernels.max(x))
        assert kernels.argmax(x) == place
        x[-1] = np.nan
        assert kernels.argmax(x) == place
        rows = np.stack([x, np.zeros_like(x)], axis=1)
        np.testing.assert_array_equal(kernels.argmax(rows, 0), [place, 0])
        np.testing.assert_array_equal(kernels.max(rows, 0), [np.nan, 0])


def test_argmax_of_equals_is_the_first(kernels, dtype):
    for length in (1, 3, 20, 3000):
        assert kernels.argmax(np.full(length, 2, dtype)) == 0
        assert kernels.argmax(np.full(length, -np.inf, dtype)) == 0
    assert (kernels.argmax(np.full((4, 5), 2, dtype), 0) == 0).all()


def test_sums_are_as_accurate_as_pairwise_ones(kernels):
    x = np.full(1 << 20, 0.1, np.float32)
    expected = float(np.float32(0.1)) * (1 << 20)
    # one after the other, float32 would be off by 0.9 %
    assert abs(float(kernels.sum(x)) - expected) <= 1e-6 * expected
    if kernels.path != "numpy":  # NumPy sums columns one after the other
        columns = kernels.sum(np.broadcast_to(np.float32(0.1), (1 << 16, 3)), 0)
        np.testing.assert_allclose(columns, float(np.float32(0.1)) * (1 << 16), rtol=1e-6)


def test_sum_of_squares_is_exact_to_float64_and_does_not_overflow_float32(kernels, dtype, layouts):
    for shape in [(), (0,), (1,), (15,), (16,), (1000,), (7, 9)]:
        x = np.asarray(np.random.default_rng(0).normal(size=shape), dtype)
        expected = math.fsum(float(v) ** 2 for v in x.ravel())
        for _, given in layouts(x):
            got = kernels.sum_of_squares(given)
            assert type(got) is float
            assert got == pytest.approx(expected, rel=1e-14)
    assert kernels.sum_of_squares(np.full(4, 1e30, np.float32)) == pytest.approx(4e60)


def test_log_sum_exp_equals_its_definition_on_every_axis(kernels, dtype, layouts):
    for shape in [(3, 4), (5, 700), (2, 3, 4), (6,), (0, 3)]:
        x = np.random.default_rng(0).normal(size=shape).astype(dtype) * 5
        for name, given in layouts(x):
            for axis in range(-x.ndim, x.ndim):
                if x.shape[axis] == 0:
                    continue
                expected = np.log(np.exp(x.astype(np.float64)).sum(axis=axis, keepdims=True))
                got = kernels.log_sum_exp(given, axis, keepdims=True)
                assert got.dtype == dtype
                np.testing.assert_allclose(
                    got,
                    expected,
                    rtol=8 * np.finfo(dtype).eps,
                    err_msg=name,
                    atol=1e-6 if dtype == np.float32 else 1e-14,
                )
                assert kernels.log_sum_exp(given, axis).shape == expected.squeeze(axis).shape


def test_log_sum_exp_knows_infinities(kernels, dtype):
    inf = np.inf
    x = np.array(
        [[-inf, -inf], [inf, 0], [inf, inf], [inf, -inf], [-inf, 2], [1e30, 1e30], [np.nan, 0]], dtype
    )
    np.testing.assert_allclose(kernels.log_sum_exp(x), [-inf, inf, inf, inf, 2, dtype(1e30), np.nan])
    assert kernels.log_sum_exp(np.zeros((2, 0), dtype)).tolist() == [-inf, -inf]
