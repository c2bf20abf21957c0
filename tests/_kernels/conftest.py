"""Every test of a kernel runs on every path that this processor has, the NumPy twins included."""

import numpy as np
import pytest

from minidist import _kernels


@pytest.fixture(params=_kernels.available, scope="module")
def kernels(request):
    """The kernels, switched to one path."""
    before = _kernels.use(request.param)
    yield _kernels
    _kernels.use(before)


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"], scope="module")
def dtype(request):
    return request.param


@pytest.fixture(scope="module")
def layouts():
    """A function that gives the same values in every memory layout an array can have."""

    def generate(x: np.ndarray):
        yield "C order", x.copy(order="C")
        yield "Fortran order", x.copy(order="F")
        read_only = x.copy()
        read_only.flags.writeable = False
        yield "read-only", read_only
        if x.ndim == 0:
            return
        yield "reversed", x[::-1].copy()[::-1]
        yield "reversed along the last dim", x[..., ::-1].copy()[..., ::-1]
        wide = np.full((*x.shape[:-1], 2 * x.shape[-1] + 1), np.nan, x.dtype)
        wide[..., 1::2] = x
        yield "every other element", wide[..., 1::2]
        memory = np.zeros(x.nbytes + 1, np.uint8)
        odd = memory[1:].view(x.dtype).reshape(x.shape)
        odd[...] = x
        yield "unaligned", odd
        record = np.zeros(x.shape, [("pad", np.int16), ("x", x.dtype)])
        record["x"] = x
        yield "a field of a record", record["x"]

    return generate
