# Sums and largest elements over any axes. C reduces the middle of three dims; everything is brought to that form.


cdef struct Middle:
    dim outer, count, inner


cdef object middle(str operation, object x, Array *a, object axis, bint keepdims, Middle *size):
    """See a contiguous x as (outer, count, inner), the reduced axes in the middle; return the result's shape.

    Returns None if x is not contiguous, or if the axes do not lie side by side.
    """
    cdef dim i, first, last
    if not a.contiguous:
        return None
    if axis is None:
        first, last = 0, a.ndim
    elif type(axis) is int and -a.ndim <= axis < a.ndim:
        first = axis + a.ndim if axis < 0 else axis
        last = first + 1
    else:
        over = checks.axes(operation, axis, a.ndim)
        first, last = (over[0], over[len(over) - 1] + 1) if over else (a.ndim, a.ndim)
        if last - first > len(over):
            return None
    size.outer = size.count = size.inner = 1
    for i in range(a.ndim):
        if i < first: size.outer *= a.shape[i]
        elif i < last: size.count *= a.shape[i]
        else: size.inner *= a.shape[i]
    if last - first == a.ndim and not keepdims:
        return ()
    shape = x.shape
    return shape[:first] + (1,) * (last - first if keepdims else 0) + shape[last:]


cdef object reduced(str operation, object x, Array *a, object axis, bint keepdims):
    """Reduce x, an array in any order, to a new array; the operation is "sum" or "max"."""
    cdef Array other
    cdef Middle size
    cdef char *to
    cdef bint is_max = operation == "max"
    shape = middle(operation, x, a, axis, keepdims, &size)
    if shape is None:
        over = checks.axes(operation, axis, a.ndim)
        if is_max:
            checks.not_empty(operation, x.shape, over)
        if not a.contiguous:  # a transpose is reduced as it lies, anything else is copied
            transposed = x.T.flags.c_contiguous
            x = x.T if transposed else np.ascontiguousarray(x)
            look(x, &other)
            if not transposed:
                return reduced(operation, x, &other, axis, keepdims)
            return reduced(operation, x, &other, tuple([a.ndim - 1 - i for i in over]), keepdims).T
        shape = checks.reduced_shape(x.shape, over, keepdims)
        for axis in over:
            x = reduced(operation, x, a, axis, True)
            look(x, &other)
            a = &other
        return x.reshape(shape)
    if is_max and size.count == 0:
        checks.not_empty(operation, x.shape, checks.axes(operation, axis, a.ndim))
    result = new(shape, a.type, &to)
    with nogil:
        if is_max: chosen[a.type].max(size.outer, size.count, size.inner, a.data, to)
        else: chosen[a.type].sum(size.outer, size.count, size.inner, a.data, to, False)
    return result


def sum(x, axis=None, bint keepdims=False, out=None, bint accumulate=False):
    """Sum over axes, see reference.sum."""
    cdef Array a, result
    cdef Middle size
    x = take("sum", "x", x, &a)
    if accumulate:
        checks.needs_out("sum", out, accumulate)
    if out is None:
        return reduced("sum", x, &a, axis, keepdims)
    shape = middle("sum", x, &a, axis, keepdims, &size)
    if shape is not None and fits(out, &result, a.type, shape) and result.contiguous and apart(&result, &a):
        with nogil:
            chosen[a.type].sum(size.outer, size.count, size.inner, a.data, result.data, accumulate)
        return out
    total = reduced("sum", x, &a, axis, keepdims)
    checks.output("sum", out, total.shape, x.dtype, {"x": x})
    if accumulate:
        total += out
    out[...] = total
    return out


def max(x, axis=None, bint keepdims=False):
    """Find the largest element over axes, see reference.max."""
    cdef Array a
    x = take("max", "x", x, &a)
    return reduced("max", x, &a, axis, keepdims)


def argmax(x, axis=None):
    """Find where the first largest element is, see reference.argmax."""
    cdef Array a
    cdef Middle size
    cdef char *to
    x = take_rows("argmax", "x", x, &a)
    shape = middle("argmax", x, &a, axis, False, &size)
    if size.count == 0:
        checks.not_empty("argmax", x.shape, checks.axes("argmax", axis, a.ndim))
    result = empty(shape, np.int64)
    to = address(result)
    if size.count:
        with nogil:
            chosen[a.type].argmax(size.outer, size.count, size.inner, a.data, <int64_t *>to)
    return result


def sum_of_squares(x):
    """Sum the squares of all elements in float64, see reference.sum_of_squares."""
    cdef Array a
    cdef double total
    x = take_rows("sum_of_squares", "x", x, &a)
    with nogil:
        total = chosen[a.type].sum_of_squares(a.size, a.data)
    return total
