"""Build the compiled kernels; everything else about the package stands in pyproject.toml.

Without a C compiler (or Python.h, or where compiling fails) the installation still succeeds: the extension is
optional, and `minidist._kernels` falls back to its NumPy twins and says so at the first run.

For work on the kernels: `python setup.py build_ext --inplace`.
"""

import os
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.sysconfig import customize_compiler

KERNELS = Path("minidist/_kernels")
SOURCES = ("paths", "workspace", "avx512", "avx2", "baseline")


def openmp() -> list[str]:
    """Return the flag that lets several threads multiply, if a small program can be built with it; else nothing."""
    flag = ["-fopenmp"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n")
        try:
            compiler = new_compiler()
            customize_compiler(compiler)
            objects = compiler.compile([str(source)], output_dir=os.sep, extra_postargs=flag)
            compiler.link_executable(objects, str(Path(folder, "probe")), extra_postargs=flag)
        except Exception:  # no compiler, or one without OpenMP (macOS): the kernels use one thread
            return []
    return flag


OPENMP = openmp()
compiled = Extension(
    "minidist._kernels.compiled",
    sources=[str(KERNELS / "compiled.pyx"), *(str(KERNELS / f"{name}.c") for name in SOURCES)],
    depends=[str(path) for pattern in ("*.h", "*.pxi", "*.pxd") for path in sorted(KERNELS.glob(pattern))],
    extra_compile_args=[
        "-O3",
        # These two change no result: sqrt need not report to errno, and comparing with nan need not set a flag.
        # Without them loops with sqrt, or with a choice between two values, are not vectorised. -ffast-math, which
        # would, also changes what sums, inf and nan mean.
        "-fno-math-errno",
        "-fno-trapping-math",
        *OPENMP,
    ],
    extra_link_args=OPENMP,
    optional=True,
)

setup(ext_modules=[compiled])  # setuptools finds Cython by itself; cythonize() would forget `optional`
