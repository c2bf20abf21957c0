"""Seven matrix products, each a few lines longer than the one before: the road from three loops to `matmul.h`.

The C of each is in `ladder.h`, to be read from top to bottom; here they get names, for
`python -m minidist.bench kernels --ladder`. They run with the instructions of `kernels.path`, and are none where the
compiled kernels are missing.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module

import numpy as np

Step = tuple[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]  # float32 (m, k) and (k, n) -> (m, n)


def _steps() -> tuple[Step, ...]:
    try:
        compiled = import_module("minidist._kernels.compiled")
    except ImportError:  # there was no C compiler when minidist was installed
        return ()
    return tuple((name, partial(compiled.climb, step)) for step, name in enumerate(compiled.ladder_steps()))


STEPS = _steps()
