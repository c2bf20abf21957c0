"""SGD and AdamW against their definitions in float64, and the cases that have gone wrong elsewhere."""

import numpy as np
import pytest

SIZES = [0, 1, 5, 16, 33, 1000]


def vectors(dtype, n, count):
    rng = np.random.default_rng(n)
    return [rng.normal(size=n).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("momentum", [None, 0.9])
def test_sgd_follows_its_definition_for_several_steps(kernels, dtype, n, momentum):
    w, g = vectors(dtype, n, 2)
    buffer = None if momentum is None else np.zeros(n, dtype)
    wide, wide_buffer = w.astype(np.float64), np.zeros(n)
    for _ in range(3):
        kernels.sgd(w, g, buffer, 0.1, momentum or 0.0, 0.01, 0.5)
        wide_buffer = (momentum or 0.0) * wide_buffer + 0.5 * g.astype(np.float64) + 0.01 * wide
        wide = wide - 0.1 * wide_buffer
    np.testing.assert_allclose(w, wide, rtol=0, atol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("n", SIZES)
def test_adamw_follows_its_definition_for_several_steps(kernels, dtype, n):
    w, g, m, v = vectors(dtype, n, 4)
    m[...] = v[...] = 0
    wide, wide_m, wide_v = w.astype(np.float64), np.zeros(n), np.zeros(n)
    for step in (1, 2, 3):
        kernels.adamw(w, g, m, v, step, 0.01, 0.9, 0.999, 1e-8, 0.1, 2.0)
        gradient = 2.0 * g.astype(np.float64)
        wide_m = 0.9 * wide_m + 0.1 * gradient
        wide_v = 0.999 * wide_v + 0.001 * gradient**2
        update = wide_m / (1 - 0.9**step) / (np.sqrt(wide_v / (1 - 0.999**step)) + 1e-8)
        wide = wide - 0.01 * 0.1 * wide - 0.01 * update
    np.testing.assert_allclose(w, wide, rtol=0, atol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize(("gradient", "expected"), [(1e-8, 0.5), (1e-7, 0.909090909)])
def test_adamw_adds_eps_after_the_bias_correction(kernels, dtype, gradient, expected):
    w, g = np.zeros(1, dtype), np.full(1, gradient, dtype)
    kernels.adamw(w, g, np.zeros(1, dtype), np.zeros(1, dtype), 1, 1.0, 0.9, 0.999, 1e-8, 0.0, 1.0)
    assert -w[0] == pytest.approx(expected, rel=1e-5)


def test_adamw_decays_the_old_weights(kernels, dtype):
    w = np.ones(1, dtype)
    kernels.adamw(
        w, np.ones(1, dtype), np.zeros(1, dtype), np.zeros(1, dtype), 1, 0.1, 0.9, 0.999, 0.0, 0.1, 1.0
    )
    assert w[0] == pytest.approx(0.89, rel=1e-6)


def test_steps_count_from_one(kernels, dtype):
    w, g, m, v = vectors(dtype, 3, 4)
    with pytest.raises(ValueError, match="step counts from 1, got 0"):
        kernels.adamw(w, g, m, v, 0, 0.1, 0.9, 0.999, 1e-8, 0.0, 1.0)


def test_gradients_may_be_read_only_or_strided(kernels, dtype, layouts):
    w, g = vectors(dtype, 9, 2)
    expected = w - dtype(0.5) * g
    for _, given in layouts(g):
        updated = w.copy()
        kernels.sgd(updated, given, None, 0.5, 0.0, 0.0, 1.0)
        np.testing.assert_allclose(updated, expected, rtol=1e-6)


def test_what_cannot_be_updated_in_place_is_refused_by_name(kernels, dtype):
    w, g, m, v = vectors(dtype, 6, 4)
    rest = (1, 0.1, 0.9, 0.999, 1e-8, 0.0, 1.0)
    frozen = m.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="m is updated in place"):
        kernels.adamw(w, g, frozen, v, *rest)
    with pytest.raises(ValueError, match="weights is updated in place"):
        kernels.sgd(w[::2], g[:3], None, 0.1, 0.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="weights and gradients overlap"):
        kernels.sgd(w[:4], w[2:], None, 0.1, 0.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="m and v overlap"):
        kernels.adamw(w, g, m, m, *rest)
    with pytest.raises(ValueError, match=r"gradients has shape \(5,\), expected \(6,\)"):
        kernels.sgd(w, g[:5], None, 0.1, 0.0, 0.0, 1.0)
    with pytest.raises(ValueError, match=r"flat vector, got shape \(2, 3\)"):
        kernels.sgd(w.reshape(2, 3), g.reshape(2, 3), None, 0.1, 0.0, 0.0, 1.0)
    other = np.zeros(6, np.float64 if dtype == np.float32 else np.float32)
    with pytest.raises(TypeError, match=r"weights is float.*, momentum_buffer is float"):
        kernels.sgd(w, g, other, 0.1, 0.9, 0.0, 1.0)


@pytest.mark.parametrize("n", [*SIZES, 2048, 5000])
def test_updates_return_the_sum_of_squares_of_the_gradients(kernels, dtype, n):
    w, g, m, v = vectors(dtype, n, 4)
    v[...] = abs(v)
    expected = np.square(g.astype(np.float64)).sum()
    assert kernels.sgd(w, g, None, 0.1, 0.0, 0.0, 0.5) == pytest.approx(expected, rel=1e-15, abs=0)
    assert kernels.sgd(w, g, m, 0.1, 0.9, 0.0, 0.5) == pytest.approx(expected, rel=1e-15, abs=0)
    assert kernels.adamw(w, g, m, v, 1, 0.1, 0.9, 0.999, 1e-8, 0.0, 0.5) == pytest.approx(
        expected, rel=1e-15, abs=0
    )
    for odd in (np.inf, np.nan) if n else ():
        g[n // 2] = odd
        np.testing.assert_equal(kernels.sgd(np.zeros(n, dtype), g, None, 0.1, 0.0, 0.0, 0.5), odd)
