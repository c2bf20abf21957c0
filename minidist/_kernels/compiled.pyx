# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The compiled kernels, as Python sees them: check the arrays, make the result, call C without the GIL.

Each function has the name and signature of its twin in `reference/`, where its meaning is described. The files
included below follow the headers of the same names. NumPy is not needed to build this: arrays come in by the buffer
protocol, which gives an address, a shape, strides and a type; anything unusual goes to `checks.py`, which converts
it or says what is wrong.
"""

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.math cimport sqrt
from libc.stdint cimport int64_t, uintptr_t

import numpy as np

from minidist._kernels import checks
from minidist._kernels.table cimport (
    dim, heads, kernels, minidist_has_threads, minidist_ladder_names, minidist_path_works, minidist_paths, path,
    product,
)

cdef const kernels *chosen = NULL  # [0] for float32, [1] for float64


def paths():
    """Name the instruction sets that this build has kernels for and this processor can run, best first."""
    found = []
    cdef const path *each = minidist_paths
    while each.name != NULL:
        if minidist_path_works(each):
            found.append(each.name.decode())
        each += 1
    return found


def select(str name):
    """Use the kernels of one path, a name from `paths()`."""
    global chosen
    cdef const path *each = minidist_paths
    while each.name != NULL:
        if each.name.decode() == name:
            chosen = each.kernels
        each += 1


include "arrays.pxi"
include "matmul.pxi"
include "ladder.pxi"
include "reductions.pxi"
include "elementwise.pxi"
include "rows.pxi"
include "attention.pxi"
include "optimizers.pxi"
include "ranks.pxi"

select(paths()[0])
