"""Softmax, cross entropy and layer norm: against float64, against differences, and at their edges."""

import numpy as np
import pytest

from minidist._kernels import reference

SHAPES = [(0, 3), (1, 1), (3, 5), (4, 10), (7, 16), (5, 33), (2, 600), (130, 64)]


@pytest.fixture(params=SHAPES, ids=str)
def x(request, dtype):
    return np.asarray(np.random.default_rng(0).normal(size=request.param), dtype)


def close(got, expected, dtype, scale=1.0):
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, rtol=0, atol=30 * scale * np.finfo(dtype).eps, strict=False)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True, initial=-1e300))
    return e / e.sum(axis=-1, keepdims=True)


def test_softmax_and_its_gradient_equal_float64_in_every_layout(kernels, layouts, x):
    truth = softmax(x.astype(np.float64))
    grad = np.asarray(np.random.default_rng(1).normal(size=x.shape), x.dtype)
    for _, given in layouts(x):
        close(kernels.softmax(given), truth, x.dtype)
    y = truth.astype(x.dtype)
    expected = truth * (grad - (grad * truth).sum(axis=-1, keepdims=True))
    for (_, g), (_, given) in zip(layouts(grad), layouts(y), strict=True):
        close(kernels.softmax_backward(g, given), expected, x.dtype)


def test_softmax_at_the_edges(kernels, dtype):
    assert kernels.softmax(np.zeros((3, 0), dtype)).shape == (3, 0)
    assert kernels.softmax(np.zeros((2, 3, 0), dtype)).shape == (2, 3, 0)
    inf = np.inf
    rows = np.array([[-inf, 0, 0], [1e30, 1e30, -1e30], [-inf, -inf, 3]], dtype)
    np.testing.assert_allclose(kernels.softmax(rows), [[0, 0.5, 0.5], [0.5, 0.5, 0], [0, 0, 1]])
    assert np.isnan(kernels.softmax(np.full((1, 20), -inf, dtype))).all()
    assert np.isnan(kernels.softmax(np.array([[0, np.nan, 1]], dtype))).all()


def exponential(kernels, x):
    """exp(x) as the kernels compute it: what attention at one position, with 0 for log_sum_exp, multiplies v's by."""
    q = x.reshape(-1, 1, 1, 1)
    ones, zeros = np.ones_like(q), np.zeros_like(q)
    with np.errstate(invalid="ignore"):  # the gradient of k may be 0 * inf
        return kernels.attention_backward(ones, q, ones, zeros, zeros, zeros[..., 0])[2].reshape(-1)


def test_the_exponential_is_within_one_and_a_half_units_in_the_last_place(kernels, dtype):
    lowest, highest = (-87.0, 70.0) if dtype == np.float32 else (-707.0, 670.0)
    halves = (np.arange(np.ceil(lowest), highest) + 0.5) * np.log(2)  # where n changes, and r is largest
    halves = halves[(halves > lowest) & (halves < highest)]
    x = np.concatenate([np.linspace(lowest, highest, 200_001), np.linspace(-1, 1, 200_001), halves])
    x = np.concatenate([x, np.nextafter(halves, 0), [0.0, -0.0, 1e-10, -1e-30]]).astype(dtype)
    exact = np.exp(x.astype(np.longdouble))
    error = np.abs(exponential(kernels, x) - exact) / np.spacing(exact.astype(dtype))
    assert error.max() <= (3 if kernels.path == "numpy" else 1.5)  # NumPy's own has 2.3


def test_the_exponential_at_its_edges(kernels, dtype):
    inf = np.inf
    x = np.array([-inf, -1e30, -1e4, np.nan, 0.0], dtype)
    np.testing.assert_array_equal(exponential(kernels, x), [0, 0, 0, np.nan, 1])
    lowest, none = (-103.9, -104.1) if dtype == np.float32 else (-745.1, -745.2)
    x = np.linspace(lowest, -87.4 if dtype == np.float32 else -708.5, 1001).astype(dtype)
    error = np.abs(
        exponential(kernels, x) - np.exp(x.astype(np.longdouble))
    )  # spaced like the smallest number
    assert error.max() <= 1.5 * float(np.finfo(dtype).smallest_subnormal)
    assert exponential(kernels, np.array([lowest], dtype))[0] > 0
    assert exponential(kernels, np.array([none], dtype))[0] == 0


def test_the_exponential_of_small_results_is_subnormal_not_zero(kernels, dtype):
    x = dtype(-100 if dtype == np.float32 else -740)
    smallest = float(np.finfo(dtype).smallest_subnormal)
    got = kernels.softmax(np.array([[x, 0]], dtype))[0, 0]
    assert abs(float(got) - np.exp(np.float64(x))) <= smallest
    assert got > 0
    assert kernels.softmax(np.array([[-1e4, 0]], dtype))[0, 0] == 0


def test_cross_entropy_and_its_gradient_equal_float64_in_every_layout(kernels, layouts, x):
    n, c = x.shape
    rng = np.random.default_rng(2)
    labels, grad = rng.integers(0, c, n), rng.normal(size=n).astype(x.dtype)
    wide = x.astype(np.float64)
    log_sum_exp = np.log(np.exp(wide).sum(axis=1))
    expected = softmax(wide)
    expected[np.arange(n), labels] -= 1
    expected *= grad[:, None]
    for (_, logits), (_, g) in zip(layouts(x), layouts(grad), strict=True):
        losses, sums, exponentials = kernels.cross_entropy(logits, labels)
        close(losses, log_sum_exp - wide[np.arange(n), labels], x.dtype)
        close(exponentials, np.exp(wide - wide.max(axis=1, keepdims=True, initial=-1e300)), x.dtype)
        assert sums.dtype == np.float64
        np.testing.assert_allclose(sums, exponentials.sum(axis=1), rtol=30 * np.finfo(x.dtype).eps)
        before = exponentials.copy()
        close(kernels.cross_entropy_backward(exponentials, labels, sums, g), expected, x.dtype)
        np.testing.assert_array_equal(exponentials, before)  # for a second backward
        alone = kernels.cross_entropy(logits, labels, gradient=False)
        np.testing.assert_array_equal(alone[0], losses)
        assert alone[2] is None
    for _, e in layouts(exponentials):
        close(kernels.cross_entropy_backward(e, labels, sums, grad), expected, x.dtype)


def test_a_sure_class_keeps_what_little_gradient_it_has(kernels):
    logits, labels = np.array([[0, -10, -11]], np.float32), np.array([0])
    _, sums, exponentials = kernels.cross_entropy(logits, labels)
    got = kernels.cross_entropy_backward(exponentials, labels, sums, np.ones(1, np.float32))
    expected = softmax(logits.astype(np.float64)) - [[1, 0, 0]]
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-7)
    assert got[0, 0] < 0


def test_infinite_logits_have_no_loss_and_no_gradient(kernels, dtype):
    logits = np.array([[np.inf, 0, 1], [-np.inf, -np.inf, -np.inf], [0, np.nan, 1]], dtype)
    labels = np.array([0, 1, 2])
    losses, sums, exponentials = kernels.cross_entropy(logits, labels)
    assert np.isnan(losses).all()
    assert np.isnan(kernels.cross_entropy_backward(exponentials, labels, sums, np.ones(3, dtype))).all()


def test_equal_logits_of_any_size_cost_the_log_of_their_number(kernels, dtype):
    logits, labels = np.full((2, 2), 1e8, dtype), np.array([0, 1])
    losses, sums, exponentials = kernels.cross_entropy(logits, labels)
    np.testing.assert_allclose(losses, 0.693147, atol=1e-6)
    gradient = kernels.cross_entropy_backward(exponentials, labels, sums, np.ones(2, dtype))
    np.testing.assert_allclose(gradient, [[-0.5, 0.5], [0.5, -0.5]], atol=1e-6)


def test_masked_logits_get_no_probability_and_no_gradient(kernels, dtype):
    logits = np.array([[-np.inf, 0, 0], [-np.inf, 5, -np.inf]], dtype)
    labels = np.array([1, 1])
    losses, sums, exponentials = kernels.cross_entropy(logits, labels)
    np.testing.assert_allclose(losses, [np.log(2), 0], atol=1e-6)
    gradient = kernels.cross_entropy_backward(exponentials, labels, sums, np.ones(2, dtype))
    np.testing.assert_allclose(gradient, [[0, -0.5, 0.5], [0, 0, 0]], atol=1e-6)
    assert kernels.cross_entropy(logits, np.array([0, 1]))[0][0] == np.inf


@pytest.mark.parametrize("label_type", [np.int64, np.int32, np.uint8, np.dtype(">i8")])
def test_labels_of_any_integer_type_and_stride_are_taken(kernels, dtype, label_type):
    logits = np.random.default_rng(0).normal(size=(4, 3)).astype(dtype)
    labels = np.array([2, 9, 0, 9, 1, 9, 2, 9]).astype(label_type)[::2]
    expected = kernels.cross_entropy(logits, np.array([2, 0, 1, 2]))[0]
    np.testing.assert_array_equal(kernels.cross_entropy(logits, labels)[0], expected)


@pytest.mark.parametrize("wrong", [3, -1])
def test_a_label_out_of_range_is_named_with_its_position(kernels, dtype, wrong):
    logits, labels = np.zeros((4, 3), dtype), np.array([0, 2, wrong, 1])
    message = f"label {wrong} at position 2 is out of range; with 3 classes the allowed range is 0 to 2"
    with pytest.raises(IndexError, match=message):
        kernels.cross_entropy(logits, labels)
    with pytest.raises(IndexError, match=message):
        kernels.cross_entropy_backward(logits, labels, np.zeros(4), np.zeros(4, dtype))


def test_layer_norm_and_its_gradients_equal_float64_in_every_layout(kernels, layouts, x):
    rng = np.random.default_rng(3)
    d = x.shape[-1]
    gain, bias = rng.normal(size=d).astype(x.dtype), rng.normal(size=d).astype(x.dtype)
    grad = rng.normal(size=x.shape).astype(x.dtype)
    truth = reference.layer_norm(x.astype(np.float64), gain.astype(np.float64), bias.astype(np.float64), 1e-5)
    slopes = reference.layer_norm_backward(
        grad.astype(np.float64), x.astype(np.float64), gain.astype(np.float64), *truth[1:]
    )
    for (_, given), (_, w), (_, b), (_, g) in zip(
        layouts(x), layouts(gain), layouts(bias), layouts(grad), strict=True
    ):
        got = kernels.layer_norm(given, w, b, 1e-5)
        for one, expected, scale in zip(got, truth, (2, 1, 400 if d == 1 else 2), strict=True):
            close(one, expected, x.dtype, scale)
        results = kernels.layer_norm_backward(g, given, w, truth[1].astype(x.dtype), truth[2].astype(x.dtype))
        for one, expected in zip(results, slopes, strict=True):
            close(one, expected, x.dtype, 4 if d > 1 else 4000)


def test_the_gradients_of_layer_norm_are_those_of_central_differences(kernels):
    rng = np.random.default_rng(0)
    x, gain, bias, grad = (
        rng.normal(size=(3, 7)),
        rng.normal(size=7),
        rng.normal(size=7),
        rng.normal(size=(3, 7)),
    )
    _, mean, rstd = kernels.layer_norm(x, gain, bias, 1e-5)
    got = kernels.layer_norm_backward(grad, x, gain, mean, rstd)
    for array, gradient in zip((x, gain, bias), got, strict=True):
        for i in np.ndindex(array.shape):
            at, values = array[i], []
            for array[i] in (at + 1e-6, at - 1e-6):
                values.append((kernels.layer_norm(x, gain, bias, 1e-5)[0] * grad).sum())
            array[i] = at
            assert gradient[i] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-7)


def test_layer_norm_takes_any_number_of_leading_dims(kernels, dtype):
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(dtype)
    gain, bias = np.ones(5, dtype), np.zeros(5, dtype)
    y, mean, rstd = kernels.layer_norm(x, gain, bias, 1e-5)
    assert (y.shape, mean.shape, rstd.shape) == ((2, 3, 5), (2, 3), (2, 3))
    dx, dgain, dbias = kernels.layer_norm_backward(y, x, gain, mean, rstd)
    assert (dx.shape, dgain.shape, dbias.shape) == ((2, 3, 5), (5,), (5,))
    row = kernels.layer_norm(x[0, 0], gain, bias, 1e-5)
    assert (row[1].shape, type(row[1])) == ((), np.ndarray)


def test_layer_norm_far_from_zero_keeps_its_variance(kernels):
    x = np.array([[10_000, 10_001, 10_002, 10_003]], np.float32)
    y, _, _ = kernels.layer_norm(x, np.ones(4, np.float32), np.zeros(4, np.float32), 0.0)
    np.testing.assert_allclose(y, [[-1.341641, -0.447214, 0.447214, 1.341641]], rtol=1e-5)
