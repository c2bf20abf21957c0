"""Every step of the ladder computes the same product, whatever the sizes."""

import numpy as np
import pytest

from minidist import _kernels
from minidist._kernels.ladder import STEPS

PATHS = [path for path in _kernels.available if path != "numpy"]


@pytest.fixture(params=PATHS, scope="module")
def path(request):
    before = _kernels.use(request.param)
    yield request.param
    _kernels.use(before)


def test_the_ladder_climbs_from_three_loops_to_threads():
    names = [name for name, _ in STEPS]
    assert names == ["naive", "reordered", "blocked", "packed", "register-tiled", "vectorised", "threaded"]


@pytest.mark.parametrize(("name", "multiply"), STEPS, ids=[name for name, _ in STEPS])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (5, 7, 3), (37, 300, 45), (250, 129, 131), (64, 64, 64), (3, 0, 2), (0, 3, 2)]
)
def test_each_step_equals_numpy(path, name, multiply, shape):
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (m, k)).astype(np.float32), rng.uniform(-1, 1, (k, n)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(multiply(a, b), exact, rtol=0, atol=8 * np.finfo(np.float32).eps * max(k, 1))


@pytest.mark.parametrize(("name", "multiply"), STEPS, ids=[name for name, _ in STEPS])
def test_a_step_refuses_what_it_cannot_multiply(name, multiply):
    with pytest.raises(ValueError, match=r"float32 matrices .* got float32 \(2, 3\) and float32 \(2, 3\)"):
        multiply(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))
