# The matrix product: strides for two dims go to C, leading dims are a loop here.


cdef int multiply(Array *a, Array *b, Array *c, dim batch, int accumulate) noexcept nogil:
    """Multiply each pair of matrices; the leading dims of a and b count with stride 0 where they are broadcast."""
    cdef dim m = a.shape[a.ndim - 2], k = a.shape[a.ndim - 1], n = b.shape[b.ndim - 1]
    cdef dim item = 8 if c.type else 4, leading = c.ndim - 2, index, rest, at, i, j, a_at, b_at, c_at
    for index in range(batch):
        a_at = b_at = c_at = 0
        rest = index
        for i in range(leading - 1, -1, -1):
            at = rest % c.shape[i]
            rest //= c.shape[i]
            c_at += at * c.strides[i]
            j = i - (c.ndim - a.ndim)
            if j >= 0 and a.shape[j] > 1: a_at += at * a.strides[j]
            j = i - (c.ndim - b.ndim)
            if j >= 0 and b.shape[j] > 1: b_at += at * b.strides[j]
        if chosen[c.type].matmul(
            m, n, k,
            a.data + a_at * item, a.strides[a.ndim - 2], a.strides[a.ndim - 1],
            b.data + b_at * item, b.strides[b.ndim - 2], b.strides[b.ndim - 1],
            c.data + c_at * item, c.strides[c.ndim - 2], accumulate,
        ):
            return -1
    return 0


cdef bint evenly_spaced(Array *a, dim *step) noexcept:
    """Say whether all rows of (..., m, k), leading dims included, lie one `step` apart."""
    cdef dim i, expected = -1
    step[0] = a.strides[a.ndim - 2]
    for i in range(a.ndim - 2, -1, -1):
        if a.shape[i] == 1:  # its stride is never used and may be anything
            continue
        if expected == -1:
            step[0] = a.strides[i]
        elif a.strides[i] != step[0] * expected:
            return False
        expected = a.shape[i] if expected == -1 else expected * a.shape[i]
    return True


cdef void merge_rows(Array *a, dim step) noexcept:
    """Make (..., m, k) one matrix of all rows."""
    cdef dim i, rows = 1, last = a.ndim - 1
    for i in range(last):
        rows *= a.shape[i]
    a.shape[0], a.strides[0] = rows, step
    a.shape[1], a.strides[1] = a.shape[last], a.strides[last]
    a.ndim = 2


cdef void swap(Array *a) noexcept:
    """Transpose the last two dims."""
    cdef dim i = a.ndim - 2
    a.shape[i], a.shape[i + 1] = a.shape[i + 1], a.shape[i]
    a.strides[i], a.strides[i + 1] = a.strides[i + 1], a.strides[i]


def matmul(a, b, out=None, bint accumulate=False):
    """Multiply matrices, see reference.matmul."""
    cdef Array left, right, result
    cdef dim i, left_step, step, batch = 1
    cdef int failed
    cdef bint fit
    cdef char *data
    a = take("matmul", "a", a, &left)
    b = take("matmul", "b", b, &right)
    if left.type != right.type:
        checks.floats("matmul", a=a, b=b)
    if left.ndim == 2 and right.ndim == 2 and left.shape[1] == right.shape[0]:
        shape = (left.shape[0], right.shape[1])
    else:
        shape = checks.product_shape(a, b)

    if out is None:
        if accumulate:
            checks.needs_out("matmul", out, accumulate)
        target = out = new(shape, left.type, &data)
        look(target, &result)
    else:
        fit = fits(out, &result, left.type, shape)
        if not (fit and apart(&result, &left) and apart(&result, &right)):
            checks.output("matmul", out, shape, a.dtype, {"a": a, "b": b})
        target = out
        if not (fit and result.strides[result.ndim - 1] == 1):
            if fit and result.ndim == 2 and left.ndim == 2 and right.ndim == 2 and result.strides[0] == 1:
                swap(&left)  # out.T = b.T @ a.T, and the rows of out.T are contiguous
                swap(&right)
                swap(&result)
                left, right = right, left
            else:
                target = np.array(out, order="C")
                look(target, &result)

    if right.ndim == 2 and left.ndim > 2 and evenly_spaced(&left, &left_step) and evenly_spaced(&result, &step):
        merge_rows(&left, left_step)  # one large product is faster than many small ones
        merge_rows(&result, step)
    for i in range(result.ndim - 2):
        batch *= result.shape[i]
    with nogil:
        failed = multiply(&left, &right, &result, batch, accumulate)
    if failed:
        raise MemoryError("matmul: no memory to pack the matrices into")
    if target is not out:
        out[...] = target
    return out
