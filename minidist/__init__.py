"""minidist: train neural networks over many processes, with an engine small enough to read in a weekend.

Each rank of a job gets one thread of arithmetic unless you ask for more: four ranks on two cores with two BLAS
threads each are slower than one rank. Math libraries read their environment when NumPy loads them, so this must
be said before. Ask for more with `OMP_NUM_THREADS=2 mpiexec -n 4 ...`.

Read next: `autograd/tensor.py` (the tape), `comm/__init__.py` (talking to other ranks), `train/` (a whole run).
"""

import os
import sys

__version__ = "0.1.0"

_threads = os.environ.setdefault("OMP_NUM_THREADS", "1")
for _library in ("OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", _threads)
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # an idle arithmetic thread must not spin beside ranks

if "numpy" in sys.modules:  # too late for the environment: tell the loaded libraries themselves
    import threadpoolctl

    threadpoolctl.threadpool_limits(int(_threads) if _threads.isdigit() else 1)

from minidist.launch import LaunchTimeout, RankFailed, before_mpi, launch  # noqa: E402  (after the environment)

before_mpi.watch()

__all__ = ["LaunchTimeout", "RankFailed", "launch"]
