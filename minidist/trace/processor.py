"""What is the most that this processor could do? Measured, not looked up: a laptop on battery is not its data sheet.

    peak rate        multiplications and additions per second of the fastest matrix product, ours or NumPy's: nothing
                     else that we know to run comes nearer to what the arithmetic units can do
    bandwidth        bytes per second of a copy, for as many bytes as are asked about: some fit into a cache

Read next: `plot/roofline.py`, and `minidist/bench/kernels.py`, which draw it and compare with it.
"""

import functools
from collections.abc import Callable
from time import perf_counter

import numpy as np

from minidist import _kernels as kernels

SQUARES = (128, 256, 384, 768)  # of matrix products: larger ones are as fast, and take longer
REPEAT = 7
SMALLEST_COPY = 1 << 18  # bytes: below this much of the time is that of the call
LARGEST_COPY = 1 << 27  # bytes: too large for most caches


class Processor:
    """Measure the two limits of this processor, each when it is first asked for."""

    @functools.cache  # noqa: B019  (there is one processor)
    def peak(self, dtype: str) -> float:
        """Return the multiplications and additions per second that matrix products reach."""
        best = 0.0
        for n in SQUARES:
            a, out = np.ones((n, n), dtype), np.empty((n, n), dtype)
            for product in (kernels.matmul, np.matmul):
                best = max(best, 2 * n**3 / shortest(functools.partial(product, a, a, out=out)))
        return best

    def bandwidth(self, nbytes: float) -> float:
        """Return the bytes per second, read and written, of copying so many bytes (read and written)."""
        power = int(np.clip(np.log2(max(nbytes, 1)), np.log2(SMALLEST_COPY), np.log2(LARGEST_COPY)))
        return self._copy(1 << power)

    @functools.cache  # noqa: B019
    def _copy(self, nbytes: int) -> float:
        source, target = np.ones(nbytes // 8, np.float32), np.ones(nbytes // 8, np.float32)
        return nbytes / shortest(lambda: np.copyto(target, source))

    def roof(self, dtype: str) -> tuple[float, float]:
        """Return the operations a second, and the bytes a second of a copy that is too large for a cache."""
        return self.peak(dtype), self.bandwidth(LARGEST_COPY)

    def roof_seconds(self, dtype: str, flops: float, nbytes: float) -> float:
        """Return the least time for so much arithmetic and so many bytes: the longer of the two."""
        return max(flops / self.peak(dtype), nbytes / self.bandwidth(nbytes) if nbytes else 0.0)


def shortest(function: Callable[[], object]) -> float:
    """Return the shortest of some times: a limit is what is reached when nothing disturbs."""
    function()
    times = []
    for _ in range(REPEAT):
        began = perf_counter()
        for _ in range(4):
            function()
        times.append((perf_counter() - began) / 4)
    return min(times)
