"""GELU and ReLU: against float64 over many magnitudes, in every layout, and at their edges."""

import math

import numpy as np
import pytest

SHAPES = [(), (0,), (1,), (5,), (33,), (4, 7), (3, 0), (2, 3, 50)]


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.fixture(params=SHAPES, ids=str)
def x(request, dtype):
    return np.asarray(3 * np.random.default_rng(0).normal(size=request.param), dtype)


def test_values_and_gradients_equal_float64_in_every_layout(kernels, layouts, x):
    eps = np.finfo(x.dtype).eps
    wide = x.astype(np.float64)
    grad = np.asarray(np.random.default_rng(1).normal(size=x.shape), x.dtype)
    slope = (gelu(wide + 1e-5) - gelu(wide - 1e-5)) / 2e-5
    for (name, given), (_, g) in zip(layouts(x), layouts(grad), strict=True):
        for got in (kernels.gelu(given), kernels.relu(given), kernels.gelu_backward(g, given)):
            assert (type(got), got.dtype, got.shape) == (np.ndarray, x.dtype, x.shape), name
        np.testing.assert_allclose(kernels.gelu(given), gelu(wide), atol=20 * eps, rtol=0, err_msg=name)
        np.testing.assert_allclose(
            kernels.gelu_backward(g, given), grad * slope, atol=1e-9 + 50 * eps, rtol=0
        )
        np.testing.assert_array_equal(kernels.relu(given), np.maximum(x, 0), err_msg=name)
        y = kernels.relu(given)
        np.testing.assert_array_equal(kernels.relu_backward(g, y), np.where(x > 0, grad, 0), err_msg=name)


def test_gelu_is_accurate_where_it_is_tiny(kernels, dtype):
    x = np.array([-5, -4, -3, -1e-3, 1e-6, 1e-30], dtype)
    wide = x.astype(np.longdouble)
    u = np.sqrt(2 / np.longdouble(math.pi)) * (wide + np.longdouble("0.044715") * wide**3)
    np.testing.assert_allclose(kernels.gelu(x), wide / (1 + np.exp(-2 * u)), rtol=200 * np.finfo(dtype).eps)


def test_gelu_saturates_without_nan(kernels, dtype):
    x = np.array([-np.inf, -1e30, -50, 50, 1e30, np.inf], dtype)
    np.testing.assert_array_equal(kernels.gelu(x), np.maximum(x, 0))
    np.testing.assert_array_equal(kernels.gelu_backward(np.ones_like(x), x), [0, 0, 0, 1, 1, 1])


def test_nan_stays_nan(kernels, dtype):
    x = np.full(20, np.nan, dtype)
    assert np.isnan(kernels.gelu(x)).all()
    assert np.isnan(kernels.relu(x)).all()
    assert np.isnan(kernels.gelu_backward(np.ones_like(x), x)).all()


def test_relu_gives_no_gradient_at_zero(kernels, dtype):
    y = kernels.relu(np.array([-1, 0, 2], dtype))
    np.testing.assert_array_equal(kernels.relu_backward(np.ones(3, dtype), y), [0, 0, 1])
