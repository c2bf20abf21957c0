"""Loops over arrays, compiled: the only code of the engine that has to be fast.

A kernel knows arrays, never Tensors. Each exists several times: once in NumPy (`reference/`: what it computes) and
once in C for each instruction set ("avx512", "avx2", "baseline", "neon": how to compute it fast). `path` names the
set that is in use, `available` lists what this machine can run, best first, and `use` switches. The choice belongs
to the process: ranks agree on the lowest common one when they start, because instruction sets round differently.

The environment variable MINIDIST_KERNELS forces a path. Where the compiled kernels are missing, the NumPy ones stand
in, and `why_numpy` says how to mend that. Read next: `reference/`, then `matmul.h`.
"""

import os
from importlib import import_module
from types import ModuleType

from minidist._kernels import memory, reference
from minidist._kernels.reference import (
    adamw,
    address_of,
    argmax,
    attention,
    attention_backward,
    cross_entropy,
    cross_entropy_backward,
    gelu,
    gelu_backward,
    has_reached,
    layer_norm,
    layer_norm_backward,
    linear,
    log_sum_exp,
    matmul,
    max,
    meet_and_sum,
    relu,
    relu_backward,
    sgd,
    softmax,
    softmax_backward,
    store_release,
    sum,
    sum_into_all,
    sum_of_squares,
    sum_staged,
    threads,
)
from minidist.errors import UserError

__all__ = [
    "adamw",
    "address_of",
    "argmax",
    "attention",
    "attention_backward",
    "available",
    "cross_entropy",
    "cross_entropy_backward",
    "gelu",
    "gelu_backward",
    "has_reached",
    "layer_norm",
    "layer_norm_backward",
    "linear",
    "log_sum_exp",
    "matmul",
    "max",
    "meet_and_sum",
    "path",
    "reference",
    "relu",
    "relu_backward",
    "sgd",
    "softmax",
    "softmax_backward",
    "store_release",
    "sum",
    "sum_into_all",
    "sum_of_squares",
    "sum_staged",
    "threads",
    "use",
    "why_numpy",
]
KERNELS = tuple(name for name in __all__ if hasattr(reference, name))

_compiled: ModuleType | None
memory.keep_freed_memory()
try:
    _compiled = import_module("minidist._kernels.compiled")
except ImportError:  # there was no C compiler when minidist was installed
    _compiled = None

available: tuple[str, ...] = (*(_compiled.paths() if _compiled else ()), "numpy")
path: str = "numpy"


def use(wanted: str) -> str:
    """Switch every kernel of this process to another path, one of `available`; return the path before."""
    global path
    if wanted not in available:
        raise UserError(
            f"The kernel path {wanted!r} is not available here; choose one of: {', '.join(available)} "
            "(the environment variable MINIDIST_KERNELS or kernels.use)."
        )
    source = reference
    if _compiled is not None and wanted != "numpy":
        _compiled.select(wanted)
        source = _compiled
    globals().update({name: getattr(source, name) for name in KERNELS})
    before, path = path, wanted
    return before


def why_numpy() -> str | None:
    """Say in one line why the NumPy twins are used, what that costs, and how to mend it; None if compiled."""
    if _compiled is not None:
        return None
    # Measured on one AVX-512 core: a step of MLP 784-256-128-10 (batch 64) and 64-64-10 (batch 32).
    return (
        "The compiled kernels are missing (no C compiler was found at installation), so NumPy stands in and a "
        "training step takes 2.5 times as long, 3.5 times for a tiny model. To mend it: on Debian, Ubuntu or WSL "
        "`sudo apt install build-essential python3-dev`, on macOS `xcode-select --install`, with conda `conda "
        "install c-compiler`; then install minidist again, in its directory: "
        "`pip install --force-reinstall --no-deps -e .`"
    )


use(os.environ.get("MINIDIST_KERNELS") or available[0])
_wanted = os.environ.get("OMP_NUM_THREADS", "")
if _wanted.isdecimal() and int(_wanted) > 0:
    threads(int(_wanted))
