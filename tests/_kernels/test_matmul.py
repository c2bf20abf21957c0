"""The product against NumPy's in float64: shapes around every tile edge, layouts, out and accumulate."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = [0, 1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 15, 16, 17, 24, 25, 31, 32, 33, 49, 65]


def tolerance(dtype, k):
    """Bound the rounding error of a sum of k products of numbers of size 1."""
    return 8 * np.finfo(dtype).eps * max(k, 1)


def exact(a, b):
    return np.matmul(a.astype(np.float64), b.astype(np.float64))


def check(result, a, b):
    assert result.dtype == a.dtype
    assert result.shape == exact(a, b).shape
    np.testing.assert_allclose(result, exact(a, b), rtol=0, atol=tolerance(a.dtype, a.shape[-1]))


@settings(deadline=None, derandomize=True, max_examples=60, database=None)
@given(
    m=st.sampled_from(SIZES), k=st.sampled_from(SIZES), n=st.sampled_from(SIZES), transposed=st.integers(0, 3)
)
def test_any_shape_and_transpose_equals_numpy(kernels, dtype, m, k, n, transposed):
    rng = np.random.default_rng(m + 100 * k + 10_000 * n)
    a = rng.uniform(-1, 1, (m, k)).astype(dtype, order="F" if transposed & 1 else "C")
    b = rng.uniform(-1, 1, (k, n)).astype(dtype, order="F" if transposed & 2 else "C")
    check(kernels.matmul(a, b), a, b)


@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize(
    "shape",
    [
        (300, 70, 40),
        (40, 600, 33),
        (37, 513, 1100),
        (500, 257, 45),
        (1, 700, 90),
        (90, 700, 1),
        (2, 300, 3),
        (27, 300, 300),
    ],
)
def test_shapes_larger_than_one_block_equal_numpy(kernels, dtype, shape, order):
    m, k, n = shape
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, (m, k)).astype(dtype, order=order[0])
    b = rng.uniform(-1, 1, (k, n)).astype(dtype, order=order[1])
    check(kernels.matmul(a, b), a, b)


def test_every_layout_of_both_inputs_gives_the_same_product(kernels, dtype, layouts):
    rng = np.random.default_rng(0)
    for m, k, n in [(5, 7, 3), (13, 33, 35), (0, 3, 2), (3, 0, 2)]:
        a, b = rng.uniform(-1, 1, (m, k)).astype(dtype), rng.uniform(-1, 1, (k, n)).astype(dtype)
        for _, left in layouts(a):
            for _, right in layouts(b):
                check(kernels.matmul(left, right), a, b)


def test_broadcast_inputs_with_stride_zero_are_read_right(kernels, dtype):
    a = np.broadcast_to(np.arange(5, dtype=dtype), (4, 5))
    b = np.broadcast_to(np.arange(5, dtype=dtype)[:, None], (5, 20))
    check(kernels.matmul(a, b), a, b)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4, 5), (5, 6)),
        ((2, 3, 4, 5), (5, 6)),
        ((3, 4, 5), (3, 5, 6)),
        ((4, 5), (3, 5, 6)),
        ((2, 1, 4, 5), (3, 5, 6)),
        ((1, 3, 4, 5), (2, 1, 5, 6)),
        ((0, 4, 5), (5, 6)),
        ((3, 0, 5), (5, 6)),
        ((1, 4, 5), (1, 5, 6)),
    ],
)
def test_leading_dims_broadcast(kernels, dtype, layouts, left, right):
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, left).astype(dtype), rng.uniform(-1, 1, right).astype(dtype)
    for _, x in layouts(a):
        for _, y in layouts(b):
            check(kernels.matmul(x, y), a, b)
    heads = np.swapaxes(np.swapaxes(a, 0, 1).copy(), 0, 1)
    check(kernels.matmul(heads, b), a, b)


def test_a_product_over_nothing_is_zero(kernels, dtype):
    out = np.full((2, 3), 7, dtype)
    kernels.matmul(np.ones((2, 0), dtype), np.ones((0, 3), dtype), out=out)
    assert (out == 0).all()
    out[...] = 7
    kernels.matmul(np.ones((2, 0), dtype), np.ones((0, 3), dtype), out=out, accumulate=True)
    assert (out == 7).all()


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    "shape", [(4, 5, 6), (33, 300, 35), (1, 3, 1), (3, 4, 1), (1, 4, 5), (3, 2, 4, 5, 6)]
)
def test_out_in_any_layout_is_written_or_added_to(kernels, dtype, layouts, shape, accumulate):
    *leading, m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (*leading, m, k)).astype(dtype), rng.uniform(-1, 1, (k, n)).astype(dtype)
    start = rng.uniform(-1, 1, (*leading, m, n)).astype(dtype)
    for name, out in layouts(start):
        if name == "read-only":
            continue
        assert kernels.matmul(a, b, out, accumulate) is out
        expected = exact(a, b) + (start if accumulate else 0)
        np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance(dtype, k + 1), err_msg=name)


def test_dims_of_size_one_may_have_any_stride(kernels, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (1, 2, 3, 4)).astype(dtype), rng.uniform(-1, 1, (4, 5)).astype(dtype)
    memory = np.full((4, 3, 5), 7, dtype)
    kernels.matmul(a, b, out=memory[1:3][None])
    np.testing.assert_allclose(memory[1:3], exact(a, b)[0], atol=tolerance(dtype, 4))
    assert (memory[[0, 3]] == 7).all()
    check(kernels.matmul(a[0, :, None, :1].swapaxes(0, 1), b), a[0, :, None, :1].swapaxes(0, 1), b)
    check(kernels.matmul(a[0][:, :1], b), a[0][:, :1], b)


def test_nothing_is_written_outside_out(kernels, dtype):
    for m, n in [(3, 5), (13, 17), (12, 33), (7, 10)]:
        memory = np.full((m + 2, n + 40), 7, dtype)
        kernels.matmul(np.ones((m, 4), dtype), np.ones((4, n), dtype), out=memory[1 : m + 1, 20 : n + 20])
        assert (memory[1 : m + 1, 20 : n + 20] == 4).all()
        memory[1 : m + 1, 20 : n + 20] = 7
        assert (memory == 7).all()


def test_nan_beyond_the_matrix_does_not_leak_in(kernels, dtype):
    memory = np.full((40, 80), np.nan, dtype)
    memory[:13, :9] = 1
    right = np.full((40, 80), np.nan, dtype)
    right[:9, :11] = 1
    assert (kernels.matmul(memory[:13, :9], right[:9, :11]) == 9).all()
    assert (kernels.matmul(right[:9, :11].T, memory[:13, :9].T) == 9).all()


def test_alignment_does_not_change_a_bit(kernels, dtype):
    rng = np.random.default_rng(0)
    memory = rng.uniform(-1, 1, 40 * 70 + 20).astype(dtype)
    b = rng.uniform(-1, 1, (70, 45)).astype(dtype)
    expected = kernels.matmul(memory[: 40 * 70].reshape(40, 70).copy(), b)
    for offset in range(1, 18):
        moved = np.empty_like(memory)
        moved[offset : offset + 40 * 70] = memory[: 40 * 70]
        result = kernels.matmul(moved[offset : offset + 40 * 70].reshape(40, 70), b)
        assert result.tobytes() == expected.tobytes()


def test_products_at_the_same_time_do_not_share_the_memory_they_pack_into(kernels, dtype):
    rng = np.random.default_rng(0)
    pairs = [rng.uniform(-1, 1, (2, n, n)).astype(dtype) for n in (300, 350, 300, 400)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for (a, b), result in zip(
                pairs, pool.map(lambda pair: kernels.matmul(*pair), pairs), strict=True
            ):
                check(result, a, b)
