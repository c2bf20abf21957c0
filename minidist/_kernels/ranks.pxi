# What ranks that share memory need.

cdef extern from *:
    """
    /* An acquire sees everything that was written before the release it reads from, whatever the processor reorders. */
    static void store_number(int64_t *at, int64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
    static int reached_number(const int64_t *at, int64_t value, int64_t looks)
    {
        while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < value) {
            if (--looks <= 0) return 0;
    #if defined(__x86_64__)
            __builtin_ia32_pause(); /* leave the core's units to its other thread for a moment */
    #endif
        }
        return 1;
    }
    """
    void store_number(int64_t *at, int64_t value) noexcept nogil
    int reached_number(const int64_t *at, int64_t value, int64_t looks) noexcept nogil

cdef enum:
    MAX_VECTORS = 1024


def sum_into_all(vectors):
    """Replace each of several vectors by the sum of all, see reference.sum_into_all."""
    cdef Array first, x
    cdef void *start[MAX_VECTORS]
    cdef dim r, count = len(vectors)
    if not 0 < count <= MAX_VECTORS or not flat(vectors[0], &first, True):
        vectors = checks.vectors_to_sum("sum_into_all", vectors, MAX_VECTORS)
        look(vectors[0], &first)
    for r in range(count):
        if not flat(vectors[r], &x, True) or x.type != first.type or x.size != first.size:
            vectors = checks.vectors_to_sum("sum_into_all", vectors, MAX_VECTORS)
            look(vectors[r], &x)
        start[r] = x.data
    with nogil:
        chosen[first.type].sum_into_all(count, first.size, start)


cdef int64_t *number(str operation, object numbers, dim i, bint written) except NULL:
    """Find the i-th of a row of int64."""
    cdef Py_buffer view
    if type(numbers) is not ndarray or numbers.dtype is not INT64 or (written and not numbers.flags.writeable):
        checks.numbers(operation, numbers, i, written)
    PyObject_GetBuffer(numbers, &view, PyBUF_STRIDES)
    cdef bint good = view.ndim == 1 and 0 <= i < view.shape[0] and view.strides[0] == 8
    cdef int64_t *at = <int64_t *>view.buf + i
    PyBuffer_Release(&view)
    if not good:
        checks.numbers(operation, numbers, i, written)
    return at


def store_release(numbers, dim i, int64_t value):
    """Write a number that others wait for, see reference.store_release."""
    store_number(number("store_release", numbers, i, True), value)


def has_reached(numbers, dim i, int64_t value, int64_t looks=1):
    """Look whether somebody else's number has come to a value, see reference.has_reached."""
    cdef int64_t *at = number("has_reached", numbers, i, False)
    cdef bint reached = reached_number(at, value, 1)
    if not reached and looks > 1:
        with nogil:
            reached = reached_number(at, value, looks)
    return reached
