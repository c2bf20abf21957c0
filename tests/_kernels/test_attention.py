"""Causal attention: against float64, over sizes that fill blocks and tiles and sizes that do not."""

import tracemalloc

import numpy as np
import pytest

from minidist._kernels import reference

SHAPES = [
    (1, 1, 1, 1),
    (2, 3, 5, 4),
    (1, 2, 64, 32),
    (2, 1, 65, 7),
    (1, 1, 130, 20),
    (1, 2, 63, 40),
    (1, 1, 200, 3),
]
EMPTY = [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4)]


def arrays(shape, dtype, count=4):
    rng = np.random.default_rng(0)
    return [np.asarray(2 * rng.normal(size=shape), dtype) for _ in range(count)]


def truth(grad, *qkv):
    grad, *qkv = (x.astype(np.float64) for x in (grad, *qkv))
    out, log_sum_exp = reference.attention(*qkv)
    return out, log_sum_exp, *reference.attention_backward(grad, *qkv, out, log_sum_exp)


def close(got, expected, dtype):
    assert got.dtype == dtype
    assert got.shape == expected.shape
    largest = np.abs(expected).max(initial=1e-30)
    np.testing.assert_allclose(got, expected, rtol=0, atol=60 * np.finfo(dtype).eps * largest)


@pytest.mark.parametrize("shape", SHAPES + EMPTY, ids=str)
def test_attention_and_its_gradients_equal_float64(kernels, dtype, shape):
    grad, q, k, v = arrays(shape, dtype)
    expected = truth(grad, q, k, v)
    out, log_sum_exp = kernels.attention(q, k, v)
    got = out, log_sum_exp, *kernels.attention_backward(grad, q, k, v, out, log_sum_exp)
    for one, other in zip(got, expected, strict=True):
        close(one, other, dtype)


def test_attention_takes_every_layout(kernels, layouts, dtype):
    grad, q, k, v = arrays((2, 2, 9, 5), dtype)
    expected = truth(grad, q, k, v)
    for (_, g), (_, a), (_, b), (_, c) in zip(layouts(grad), layouts(q), layouts(k), layouts(v), strict=True):
        out, log_sum_exp = kernels.attention(a, b, c)
        got = out, log_sum_exp, *kernels.attention_backward(g, a, b, c, out, log_sum_exp)
        for one, other in zip(got, expected, strict=True):
            close(one, other, dtype)


def test_gradients_are_written_into_pieces_of_one_array(kernels, dtype):
    batch, heads, time, dim = 2, 3, 70, 8
    qkv = np.asarray(np.random.default_rng(1).normal(size=(batch, time, 3, heads, dim)), dtype)
    q, k, v = (qkv[:, :, i].swapaxes(1, 2) for i in range(3))
    (grad,) = arrays(q.shape, dtype, 1)
    out, log_sum_exp = kernels.attention(q, k, v)
    assert out.swapaxes(1, 2).flags.c_contiguous
    dqkv = np.full_like(qkv, np.nan)
    pieces = tuple(dqkv[:, :, i].swapaxes(1, 2) for i in range(3))
    kernels.attention_backward(grad, q, k, v, out, log_sum_exp, pieces)
    for piece, alone in zip(pieces, truth(grad, q, k, v)[2:], strict=True):
        close(piece, alone, dtype)


def test_the_future_changes_nothing(kernels, dtype):
    q, k, v = arrays((1, 2, 150, 6), dtype, 3)
    before, _ = kernels.attention(q, k, v)
    for x in (q, k, v):
        x[:, :, 100:] = 1e3
    after, _ = kernels.attention(q, k, v)
    np.testing.assert_array_equal(before[:, :, :100], after[:, :, :100])


def test_large_scores_do_not_overflow(kernels, dtype):
    q, k, v = arrays((1, 1, 80, 4), dtype, 3)
    out, log_sum_exp = kernels.attention(1000 * q, k, v)
    assert np.isfinite(out).all()
    assert np.isfinite(log_sum_exp).all()
    assert (np.abs(out) <= np.abs(v).max() * 1.001).all()


def test_the_compiled_attention_makes_no_array_of_time_by_time(kernels):
    if kernels.path == "numpy":
        return  # the definition does, and says so
    grad, q, k, v = arrays((1, 1, 600, 4), np.float32)
    tracemalloc.start()
    out, log_sum_exp = kernels.attention(q, k, v)
    kernels.attention_backward(grad, q, k, v, out, log_sum_exp)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 600 * 600 * 4 / 10


def test_unfit_arrays_are_refused(kernels):
    x = np.ones((1, 2, 3, 4))
    with pytest.raises(
        ValueError, match=r"attention: q must have shape \(batch, heads, time, dim\), got \(3, 4\)"
    ):
        kernels.attention(x[0, 0], x[0, 0], x[0, 0])
    with pytest.raises(
        ValueError, match=r"attention: k must have .* got \(1, 2, 2, 4\), expected \(1, 2, 3, 4\)"
    ):
        kernels.attention(x, x[:, :, :2], x)
    with pytest.raises(TypeError, match="q is float64, k is float32"):
        kernels.attention(x, x.astype(np.float32), x)
    out, log_sum_exp = kernels.attention(x, x, x)
    with pytest.raises(ValueError, match=r"log_sum_exp has shape \(1, 2\), expected \(1, 2, 3\)"):
        kernels.attention_backward(x, x, x, x, out, log_sum_exp[..., 0])
    with pytest.raises(ValueError, match="out overlaps input 1, which is still read"):
        kernels.attention_backward(x.copy(), x, x, x, out, log_sum_exp, (x, x.copy(), x.copy()))
    with pytest.raises(ValueError, match=r"out has shape \(1, 2, 3\), expected"):
        kernels.attention_backward(x, x, x, x, out, log_sum_exp, (log_sum_exp, x.copy(), x.copy()))
