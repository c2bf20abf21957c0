"""Values at the corners: ties, zeros, infinities, large numbers, repeated use. Each has one right answer."""

import numpy as np
import pytest

from minidist import _kernels as kernels
from minidist.autograd import Tensor, no_grad, ops


def gradient(function, x, dtype=np.float64):
    """Return d(sum of function)/dx."""
    tensor = Tensor(np.asarray(x, dtype), requires_grad=True)
    function(tensor).sum().backward()
    return tensor.grad


def test_a_tensor_used_twice_collects_both_contributions():
    a = Tensor(1.0, requires_grad=True)
    b = a + a
    c = b + b
    c.backward()
    assert a.grad == 4


def test_three_paths_to_one_tensor_add_up():
    x = Tensor(1.0, requires_grad=True)
    a = Tensor(1.0, requires_grad=True)
    (x * (x * a) + x * (x * a) + x * x * a).backward()
    assert x.grad == 6
    assert a.grad == 3


def test_equal_values_are_different_variables():
    a, b = Tensor(3.0, requires_grad=True), Tensor(3.0, requires_grad=True)
    (a + b).backward()
    assert a.grad == 1
    assert b.grad == 1
    assert a != b
    assert len({a, b}) == 2


def test_an_element_taken_twice_gets_both_gradients():
    np.testing.assert_array_equal(gradient(lambda x: x[[0, 0]], [1.0, 2.0]), [2, 0])
    np.testing.assert_array_equal(
        gradient(lambda x: x[np.array([1, 1]), np.array([1, 1])], np.ones((2, 2))), [[0, 0], [0, 2]]
    )


@pytest.mark.parametrize("power", [1, 2])
def test_norm_at_zero_has_gradient_zero(power):
    np.testing.assert_array_equal(gradient(lambda x: x.norm() ** power, [0.0, 0.0]), [0, 0])


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_norm_neither_overflows_nor_vanishes(scale):
    assert Tensor(scale * np.array([3.0, 4.0])).norm().item() == pytest.approx(5 * scale)
    np.testing.assert_allclose(gradient(lambda x: x.norm(), scale * np.array([3.0, 4.0])), [0.6, 0.8])


def test_equal_maxima_share_the_gradient():
    np.testing.assert_array_equal(gradient(lambda x: x.max(), [1.0, 3.0, 3.0, 3.0]), [0, 1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_array_equal(
        gradient(lambda x: x.min(axis=1), [[1.0, 1.0], [2.0, 5.0]]), [[0.5, 0.5], [1, 0]]
    )
    np.testing.assert_array_equal(gradient(lambda x: ops.maximum(x, 2.0), [1.0, 2.0, 3.0]), [0, 0.5, 1])
    np.testing.assert_array_equal(gradient(lambda x: ops.minimum(x, 2.0), [1.0, 2.0, 3.0]), [1, 0.5, 0])
    np.testing.assert_array_equal(gradient(lambda x: ops.maximum(x, x), [1.0, 2.0]), [1, 1])
    np.testing.assert_array_equal(
        gradient(lambda x: ops.max_pool2d(x, 2), np.ones((1, 1, 2, 2))).ravel(), [0.25] * 4
    )


def test_corners_have_gradient_zero():
    np.testing.assert_array_equal(gradient(ops.relu, [-1.0, 0.0, 1.0]), [0, 0, 1])
    np.testing.assert_array_equal(gradient(abs, [-1.0, 0.0, 1.0]), [-1, 0, 1])


def test_clip_passes_the_gradient_up_to_and_on_its_limits():
    np.testing.assert_array_equal(
        gradient(lambda x: ops.clip(x, 0, 1), [-1.0, 0.0, 0.5, 1.0, 2.0]), [0, 1, 1, 1, 0]
    )


def test_powers_at_zero():
    np.testing.assert_array_equal(gradient(lambda x: x**0, [0.0, 2.0]), [0, 0])
    np.testing.assert_array_equal(gradient(lambda x: x**1, [0.0, 2.0]), [1, 1])
    np.testing.assert_array_equal(gradient(lambda x: x**2, [0.0, 2.0]), [0, 4])
    np.testing.assert_array_equal(gradient(lambda n: 0.0**n, [1.0, 2.0]), [0, 0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 1 / x,
        lambda x: x / x,
        lambda x: x**-1.0,
        lambda x: x**0.5,
        ops.sqrt,
        ops.log,
        lambda x: ops.exp(1000 / x),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy warns of 1/0 in the forward, and should
def test_an_infinite_slope_that_is_masked_out_gives_zero(function):
    x = Tensor([0.0, 4.0], requires_grad=True)
    ops.where([False, True], function(x), 0.0).sum().backward()
    assert x.grad[0] == 0
    assert np.isfinite(x.grad[1]) == np.isfinite(function(x).data[1])


def test_sigmoid_and_softplus_do_not_overflow():
    x = [-1000.0, -30.0, 0.0, 30.0, 1000.0]
    np.testing.assert_allclose(ops.sigmoid(x).data, [0, 9.357622968839299e-14, 0.5, 1, 1], atol=0, rtol=1e-12)
    np.testing.assert_allclose(ops.softplus(x).data, [0, 9.3576229688e-14, np.log(2), 30, 1000], rtol=1e-10)
    np.testing.assert_allclose(gradient(ops.softplus, x), ops.sigmoid(x).data)
    assert np.isfinite(gradient(ops.sigmoid, x, np.float32)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_logits_cost_log_2_however_large(dtype):
    logits = np.full((1, 2), 1e8, dtype)
    assert ops.cross_entropy(logits, [0], 1).item() == pytest.approx(0.693147, abs=1e-6)
    np.testing.assert_allclose(ops.log_softmax(Tensor(logits)).data, -0.693147, atol=1e-6)
    np.testing.assert_allclose(ops.softmax(Tensor(logits)).data, 0.5)
    np.testing.assert_allclose(gradient(lambda x: ops.cross_entropy(x, [0], 1), logits, dtype), [[-0.5, 0.5]])


def test_softmax_takes_its_maximum_from_each_row():
    x = np.array([[0.0, 1000.0], [-1000.0, -1000.0]])
    np.testing.assert_allclose(ops.softmax(x).data, [[0, 1], [0.5, 0.5]])


def test_cross_entropy_is_the_sum_over_its_examples_divided_by_the_global_count():
    logits, labels = np.random.default_rng(0).normal(size=(7, 3)), np.array([0, 1, 2, 0, 1, 2, 0])
    whole = ops.cross_entropy(logits, labels, 7).item()
    cut = [ops.cross_entropy(logits[a:b], labels[a:b], 7).item() for a, b in ((0, 1), (1, 5), (5, 5), (5, 7))]
    assert sum(cut) == pytest.approx(whole, rel=1e-14)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert whole == pytest.approx(-np.log(probabilities[np.arange(7), labels]).mean())


def test_cross_entropy_can_go_back_twice_and_saves_nothing_without_a_tape(monkeypatch):
    logits = Tensor(np.random.default_rng(0).normal(size=(4, 3)), requires_grad=True)
    loss = ops.cross_entropy(logits, [0, 1, 2, 0], 4)
    loss.backward()
    once = logits.grad.copy()
    loss.backward()
    np.testing.assert_array_equal(logits.grad, 2 * once)

    asked, computed = [], kernels.cross_entropy
    monkeypatch.setattr(kernels, "cross_entropy", lambda *a: asked.append(a[-1]) or computed(*a))
    with no_grad():
        assert ops.cross_entropy(logits, [0, 1, 2, 0], 4).item() == loss.item()
    ops.cross_entropy(logits.data, [0, 1, 2, 0], 4)
    ops.cross_entropy(logits, [0, 1, 2, 0], 4)
    assert asked == [False, False, True]


def test_broadcast_gradients_have_the_shape_of_the_input():
    for small, large in [
        ((1,), (1, 2)),
        ((1, 3), (4, 3)),
        ((), (5, 4)),
        ((1,), (5, 4)),
        ((4, 1), (1, 4)),
        ((), ()),
    ]:
        a, b = Tensor(np.ones(small), requires_grad=True), Tensor(np.full(large, 2.0), requires_grad=True)
        (a * b).sum().backward()
        assert a.grad.shape == small
        assert b.grad.shape == large
        np.testing.assert_array_equal(a.grad, 2 * np.prod(np.broadcast_shapes(small, large)) / np.prod(small))


def test_assignment_by_where_gives_the_replaced_element_no_gradient():
    a, v = Tensor([3.0, 2.0, 3.0, 4.0], requires_grad=True), Tensor(10.0, requires_grad=True)
    replaced = ops.where([True, False, False, False], v, a)
    (replaced * np.array([1.0, 2.0, 3.0, 4.0])).sum().backward()
    np.testing.assert_array_equal(a.grad, [0, 2, 3, 4])
    assert v.grad == 1


def test_dropout_masks_do_not_depend_on_how_the_tensor_is_cut():
    x = Tensor(np.ones((6, 5)), requires_grad=True)
    whole = ops.dropout(x, 0.3, seed=1, purpose="layer", step=4)
    parts = [ops.dropout(x[a:b], 0.3, 1, "layer", 4, start=5 * a).data for a, b in ((0, 2), (2, 3), (3, 6))]
    np.testing.assert_array_equal(whole.data, np.concatenate(parts))
    assert set(np.unique(whole.data)) == {0, 1 / 0.7}
    whole.sum().backward()
    np.testing.assert_array_equal(x.grad, whole.data)
    other = ops.dropout(x, 0.3, seed=1, purpose="layer", step=5)
    assert (other.data != whole.data).any()


FLOAT32 = [
    lambda x: x * 0.5,
    lambda x: x * np.float64(0.5),
    lambda x: np.float64(0.5) * x,
    lambda x: x / np.array([1, 2], np.int64),
    lambda x: x / Tensor(np.array([1, 2], np.int64)),
    lambda x: np.array([1.0, 2.0]) - x,
    lambda x: x**2,
    lambda x: 2**x,
    lambda x: x**-0.5,
    lambda x: x.sum() / 3,
    lambda x: x.mean() * x.max(),
    lambda x: 1 - x[0] * 0.1,
    lambda x: x.norm() ** 2,
    lambda x: ops.clip(x, 0.1, 1.5),
    lambda x: ops.where(x > 1, x, 0.5),
    lambda x: ops.maximum(x, 1.2),
    lambda x: ops.dropout(x, 0.5, 0, "d", 0),
    lambda x: ops.sigmoid(x[0]) + ops.softplus(x[1]) + ops.tanh(x[0]),
    lambda x: ops.gelu(x) + ops.exp(x) + ops.log(x) + ops.sqrt(x),
    lambda x: ops.cross_entropy(x.reshape(1, 2), [1], 3),
    lambda x: ops.layer_norm(x, np.ones(2), np.zeros(2)),
    lambda x: ops.embedding(x.reshape(2, 1), [0, 0, 1]) + ops.concatenate([x, np.zeros(1)]).reshape(3, 1),
    lambda x: ops.linear(x, np.ones((2, 3)), np.ones(3)),
    lambda x: x @ np.ones(2),
    lambda x: ops.causal_attention(x.reshape(1, 1, 2, 1), np.ones((1, 1, 2, 1)), np.ones((1, 1, 2, 1))),
    lambda x: ops.conv2d(x.reshape(1, 1, 1, 2), np.ones((1, 1, 1, 1)), np.ones(1)),
    lambda x: ops.log_softmax(x) + ops.softmax(x) + ops.log_sum_exp(x),
    lambda x: ops.stack([x, x * 2]).T @ x.swapaxes(0, 0),
]


@pytest.mark.parametrize("function", FLOAT32)
def test_float32_stays_float32_and_agrees_with_float64(function):
    gradients = {}
    values = {}
    for dtype in (np.float32, np.float64):
        x = Tensor(np.array([1.25, 1.75], dtype), requires_grad=True)
        y = function(x)
        assert y.dtype == dtype
        y.sum().backward()
        assert x.grad.dtype == dtype
        gradients[dtype], values[dtype] = x.grad, y.data
    np.testing.assert_allclose(values[np.float32], values[np.float64], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradients[np.float32], gradients[np.float64], rtol=1e-5, atol=1e-6)


def test_float32_layers_agree_with_float64_on_larger_arrays():
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=shape) for shape in ((32, 24), (24, 16), (16,), (16,), (16,))]

    def run(dtype):
        x, w, b, gain, bias = (Tensor(a.astype(dtype), requires_grad=True) for a in arrays)
        h = ops.gelu(ops.layer_norm(ops.linear(x, w, b), gain, bias)).reshape(1, 4, 8, 16)
        ops.cross_entropy(ops.causal_attention(h, h, h), np.arange(32).reshape(1, 4, 8) % 16, 32).backward()
        return [t.grad for t in (x, w, b, gain, bias)]

    for single, double in zip(run(np.float32), run(np.float64), strict=True):
        np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-6)


def test_a_tensor_of_float32_beside_one_of_float64_is_refused_with_both_named():
    a, b = Tensor(np.ones(2, np.float32)), Tensor(np.ones(2, np.float64))
    for operation in (ops.add, ops.multiply, ops.matmul, ops.maximum, lambda a, b: ops.concatenate([a, b])):
        with pytest.raises(TypeError, match="one dtype, got float32 and float64"):
            operation(a, b)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.cross_entropy(np.zeros((2, 3)), [0], 2), ValueError, r"\(2,\).* got \(1,\)"),
        (lambda: ops.cross_entropy(np.zeros((2, 3)), [0, 3], 2), IndexError, "3"),
        (lambda: ops.cross_entropy(np.zeros((2, 3)), [0, -1], 2), IndexError, "-1"),
        (lambda: ops.cross_entropy(np.zeros((2, 3)), [0, 1], 0), ValueError, "count=0"),
        (lambda: ops.embedding(np.zeros((2, 3)), [2]), IndexError, "rows 0 to 1, got indices from 2 to 2"),
        (lambda: ops.embedding(np.zeros((2, 3)), [-1]), IndexError, "rows 0 to 1"),
        (lambda: ops.embedding(np.zeros((2, 3)), [0.5]), TypeError, "float64"),
        (lambda: ops.dropout(np.zeros(3), 1.0, 0, "d", 0), ValueError, "rate from 0 to below 1, got 1"),
        (
            lambda: ops.linear(np.zeros((2, 3)), np.zeros((3, 4)), np.zeros(1)),
            ValueError,
            r"\(1,\).* \(4,\)",
        ),
        (
            lambda: ops.linear(np.zeros((2, 3)), np.zeros((3, 4)), np.zeros(4), "gelu"),
            ValueError,
            "'relu' or None, got 'gelu'",
        ),
        (lambda: ops.linear(np.zeros((2, 3)), np.zeros((4, 3))), ValueError, r"\(2, 3\).*\(4, 3\)"),
        (lambda: ops.conv2d(np.zeros((1, 2, 3, 3)), np.zeros((1, 3, 1, 1))), ValueError, "one c"),
        (
            lambda: ops.conv2d(np.zeros((1, 1, 2, 2)), np.zeros((1, 1, 3, 3))),
            ValueError,
            "3x3 do not fit.*2x2",
        ),
        (
            lambda: ops.conv2d(np.zeros((1, 1, 2, 2)), np.zeros((2, 1, 1, 1)), np.zeros(1)),
            ValueError,
            r"\(2,\)",
        ),
        (lambda: ops.max_pool2d(np.zeros((1, 1, 3, 4)), 2), ValueError, "squares of 2 .* 3x4"),
        (lambda: ops.causal_attention(*(np.zeros((1, 1, t, 2)) for t in (3, 3, 4))), ValueError, "one shape"),
        (lambda: ops.mean(np.zeros((0, 3))), ValueError, "at least one element"),
        (lambda: ops.max(np.zeros((0, 3))), ValueError, "no largest element"),
        (lambda: ops.matmul(np.zeros((2, 3)), np.zeros((2, 3))), ValueError, r"\(2, 3\) and \(2, 3\)"),
    ],
)
def test_wrong_arguments_are_refused_with_what_was_got_and_expected(call, error, message):
    with pytest.raises(error, match=message):
        call()
