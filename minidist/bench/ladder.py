"""The ladder of the matrix product, from three loops to the kernel in use: `python -m minidist.bench --ladder`.

What each step does, and why it is faster than the one before, stands in `minidist/_kernels/ladder.py`.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from minidist._kernels.ladder import STEPS
from minidist.bench.kernels import random
from minidist.bench.measure import Case
from minidist.errors import UserError

SQUARES = (256, 1024)  # B in the L2 cache, and larger: only there is it worth cutting


def cases(quick: bool) -> Iterator[Case]:
    """Give every step beside np.matmul; without the larger square where it must be quick."""
    if not STEPS:
        raise UserError("the ladder is compiled, and that needs a C compiler: python -m minidist.doctor")
    for n in SQUARES[:1] if quick else SQUARES:
        a, b = random(n, n), random(n, n)
        for name, product in STEPS:
            peers = {"np.matmul": partial(np.matmul, a, b)}
            yield Case(name, (n, n, n), "float32", partial(product, a, b), peers, 2.0 * n**3, 12.0 * n * n)
