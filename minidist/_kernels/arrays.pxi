# What a kernel has to know of an array, and how to get it from a NumPy array.

cdef enum:
    MAX_DIMS = 64  # NumPy has no more

cdef object ndarray = np.ndarray, empty = np.empty, FLOAT32 = np.dtype(np.float32), FLOAT64 = np.dtype(np.float64)
cdef object INT64 = np.dtype(np.int64)

cdef struct Array:
    char *data
    int type          # 0: float32, 1: float64, the index into `chosen`
    int ndim
    int read_only
    int contiguous    # in C order
    dim size
    dim shape[MAX_DIMS]
    dim strides[MAX_DIMS]  # in numbers, not bytes


cdef int look(object x, Array *a) except -1:
    """Describe x if it is an aligned ndarray of float32 or float64; return 0 if it is not."""
    if type(x) is not ndarray:
        return 0
    cdef Py_buffer view
    cdef dim i
    try:
        PyObject_GetBuffer(x, &view, PyBUF_STRIDES | PyBUF_FORMAT)
    except (BufferError, ValueError):  # a dtype that has no format: datetime, say
        return 0
    cdef int good = view.format[0] != 0 and view.format[1] == 0
    good = good and (view.format[0] == c"f" or view.format[0] == c"d")
    good = good and (view.len == 0 or <uintptr_t>view.buf % view.itemsize == 0)
    if good:
        a.data = <char *>view.buf
        a.type = view.format[0] == c"d"
        a.ndim = view.ndim
        a.read_only = view.readonly
        a.contiguous = PyBuffer_IsContiguous(&view, c"C")
        a.size = view.len // view.itemsize
        for i in range(view.ndim):
            a.shape[i] = view.shape[i]
            a.strides[i] = view.strides[i] // view.itemsize
            good = good and (view.len == 0 or view.strides[i] % view.itemsize == 0)
    PyBuffer_Release(&view)  # x itself keeps the memory alive while the kernel runs
    return good


cdef object take(str operation, str name, object x, Array *a):
    """Describe an input in any memory order; return the array that owns the memory (x, or an aligned copy)."""
    if not look(x, a):
        (x,) = checks.floats(operation, **{name: x})
        if not look(x, a):
            raise TypeError(f"{operation}: {name} is an array of a kind that was not foreseen: {x.flags}, {x.strides}")
    return x


cdef object take_rows(str operation, str name, object x, Array *a):
    """Describe an input, copied if it is not C-contiguous."""
    x = take(operation, name, x, a)
    if not a.contiguous:
        x = np.ascontiguousarray(x)
        look(x, a)
    return x


cdef char *address(object x) except? NULL:
    """Find the memory of an array that is known to be contiguous."""
    cdef Py_buffer view
    PyObject_GetBuffer(x, &view, PyBUF_STRIDES)
    cdef char *data = <char *>view.buf
    PyBuffer_Release(&view)
    return data


cdef object new(object shape, int type, char **data):
    """Make an array for a result, and say where its memory is."""
    x = empty(shape, FLOAT64 if type else FLOAT32)
    data[0] = address(x)
    return x


cdef bint same_shape(Array *a, Array *b) noexcept:
    cdef dim i
    if a.ndim != b.ndim:
        return False
    for i in range(a.ndim):
        if a.shape[i] != b.shape[i]:
            return False
    return True


cdef bint apart(Array *a, Array *b) noexcept:
    """Say whether the stretches of memory that two arrays reach over are disjoint."""
    cdef char *a_low = a.data
    cdef char *a_high = a.data
    cdef char *b_low = b.data
    cdef char *b_high = b.data
    cdef dim i, reach, item = 8 if a.type else 4
    if a.size == 0 or b.size == 0:
        return True
    for i in range(a.ndim):
        reach = (a.shape[i] - 1) * a.strides[i] * item
        if reach < 0: a_low += reach
        else: a_high += reach
    for i in range(b.ndim):
        reach = (b.shape[i] - 1) * b.strides[i] * item
        if reach < 0: b_low += reach
        else: b_high += reach
    return a_high + item <= b_low or b_high + item <= a_low


cdef bint fits(object out, Array *result, int type, object shape) except -1:
    """Describe an `out`; say whether it has the type and shape of the result and may be written."""
    return look(out, result) and result.type == type and not result.read_only and out.shape == shape
