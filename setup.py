"""Build the compiled kernels; everything else about the package stands in pyproject.toml.

Without a C compiler (or Python.h, or where compiling fails) the installation still succeeds: the extension is
optional, and `minidist._kernels` falls back to its NumPy twins and says so at the first run.

For work on the kernels: `python setup.py build_ext --inplace`.
"""

from pathlib import Path

from setuptools import Extension, setup

KERNELS = Path("minidist/_kernels")

compiled = Extension(
    "minidist._kernels.compiled",
    sources=[str(KERNELS / name) for name in ("compiled.pyx", "paths.c", "avx512.c", "avx2.c", "baseline.c")],
    depends=[str(path) for pattern in ("*.h", "*.pxi", "*.pxd") for path in sorted(KERNELS.glob(pattern))],
    extra_compile_args=[
        "-O3",
        # These two change no result: sqrt need not report to errno, and comparing with nan need not set a flag.
        # Without them loops with sqrt, or with a choice between two values, are not vectorised. -ffast-math, which
        # would, also changes what sums, inf and nan mean.
        "-fno-math-errno",
        "-fno-trapping-math",
    ],
    optional=True,
)

setup(ext_modules=[compiled])  # setuptools finds Cython by itself; cythonize() would forget `optional`
