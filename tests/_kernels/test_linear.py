"""A layer in one pass against its NumPy twin: bias, activation, every path, and the same bytes from any threads."""

import numpy as np
import pytest


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(1, 3, 1), (5, 7, 1), (1, 70, 45), (33, 300, 35), (300, 600, 500), (2, 3, 8, 9), (4, 0, 3), (0, 4, 3)],
)
def test_bias_and_activation_follow_the_product(kernels, dtype, layouts, shape, with_bias, activation):
    *rows, k, n = shape
    rng = np.random.default_rng(0)
    x, weight = rng.uniform(-1, 1, (*rows, k)).astype(dtype), rng.uniform(-1, 1, (k, n)).astype(dtype)
    bias = rng.uniform(-1, 1, n).astype(dtype) if with_bias else None
    exact = kernels.reference.linear(
        x.astype(np.float64),
        weight.astype(np.float64),
        None if bias is None else bias.astype(np.float64),
        activation,
    )
    tolerance = 8 * np.finfo(dtype).eps * (k + 1)
    np.testing.assert_allclose(kernels.linear(x, weight, bias, activation), exact, rtol=0, atol=tolerance)
    for name, out in layouts(np.zeros((*rows, n), dtype)):
        if name != "read-only":
            assert kernels.linear(x, weight, bias, activation, out) is out
            np.testing.assert_allclose(out, exact, rtol=0, atol=tolerance, err_msg=name)


def test_nan_stays_nan_through_relu(kernels, dtype):
    x, weight = np.full((2, 3), np.nan, dtype), np.ones((3, 20), dtype)
    assert np.isnan(kernels.linear(x, weight, np.ones(20, dtype), "relu")).all()


def test_a_bias_of_another_size_or_dtype_is_refused(kernels, dtype):
    x, weight = np.ones((2, 3), dtype), np.ones((3, 4), dtype)
    with pytest.raises(ValueError, match=r"linear: bias has shape \(1,\), expected \(4,\)"):
        kernels.linear(x, weight, np.ones(1, dtype))
    other = np.float64 if dtype == np.float32 else np.float32
    with pytest.raises(TypeError, match="all arrays must have one dtype"):
        kernels.linear(x, weight, np.ones(4, other))


def test_an_unknown_activation_is_refused_with_the_choices(kernels):
    with pytest.raises(ValueError, match="no activation 'tanh'; choose one of: None, 'relu', 'gelu'"):
        kernels.linear(np.ones((2, 3)), np.ones((3, 4)), None, "tanh")


def test_out_may_not_overlap_the_bias(kernels, dtype):
    memory = np.ones((2, 4), dtype)
    with pytest.raises(ValueError, match="out overlaps bias"):
        kernels.linear(np.ones((2, 3), dtype), np.ones((3, 4), dtype), memory[0], out=memory)


@pytest.mark.parametrize("order", ["CC", "CF", "FC"])
@pytest.mark.parametrize(
    "shape",
    [(300, 200, 150), (150, 200, 301), (61, 700, 90), (90, 300, 2000), (20, 300, 2000), (2000, 300, 10)],
)
def test_the_number_of_threads_changes_no_bit(kernels, dtype, shape, order):
    m, k, n = shape
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, (m, k)).astype(dtype, order=order[0])
    b = rng.uniform(-1, 1, (k, n)).astype(dtype, order=order[1])
    bias = rng.uniform(-1, 1, n).astype(dtype)
    before = kernels.threads(1)
    try:
        alone = kernels.linear(a, b, bias, "relu")
        for count in (2, 3):
            kernels.threads(count)
            assert kernels.linear(a, b, bias, "relu").tobytes() == alone.tobytes()
    finally:
        kernels.threads(before)


def test_no_thread_at_all_is_refused(kernels):
    with pytest.raises(ValueError, match="threads: got 0, expected a number of threads from 1 up"):
        kernels.threads(0)
