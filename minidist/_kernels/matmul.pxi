# The matrix product: strides for two dims go to C, leading dims are a loop here.


cdef int multiply(Array *a, Array *b, Array *c, dim batch, product *x) noexcept nogil:
    """Multiply each pair of matrices; the leading dims of a and b count with stride 0 where they are broadcast."""
    x.m, x.k, x.n = a.shape[a.ndim - 2], a.shape[a.ndim - 1], b.shape[b.ndim - 1]
    x.a_row, x.a_col = a.strides[a.ndim - 2], a.strides[a.ndim - 1]
    x.b_row, x.b_col = b.strides[b.ndim - 2], b.strides[b.ndim - 1]
    x.c_row = c.strides[c.ndim - 2]
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
        x.a, x.b, x.c = a.data + a_at * item, b.data + b_at * item, c.data + c_at * item
        if chosen[c.type].matmul(x, threads_wanted):
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


cdef int threads_wanted = 1


def threads(n=None):
    """Set how many threads a large product may use (see reference.threads); return how many it was."""
    global threads_wanted
    before = threads_wanted
    if n is not None:
        threads_wanted = checks.threads(n) if minidist_has_threads else 1
    return before


def matmul(a, b, out=None, bint accumulate=False):
    """Multiply matrices, see reference.matmul."""
    cdef product x
    x.accumulate, x.bias, x.activation = accumulate, NULL, 0
    return run_product("matmul", a, b, out, &x, None, NULL)


def linear(x, weight, bias=None, activation=None, out=None):
    """Multiply, add a bias and bend in one pass, see reference.linear."""
    cdef product one
    cdef Array each
    one.accumulate, one.bias, one.activation = 0, NULL, checks.activation(activation)
    if bias is not None:
        bias = take_rows("linear", "bias", bias, &each)
        one.bias = each.data
    return run_product("linear", x, weight, out, &one, bias, &each)


cdef object run_product(str operation, a, b, out, product *x, bias, Array *added):
    """Check and describe the arrays, make the result, multiply."""
    cdef Array left, right, result
    cdef dim i, left_step, step, batch = 1
    cdef int failed
    cdef bint fit, plain = x.bias == NULL and x.activation == 0
    cdef char *data
    a = take(operation, "a", a, &left)
    b = take(operation, "b", b, &right)
    if left.type != right.type:
        checks.floats(operation, a=a, b=b)
    if left.ndim == 2 and right.ndim == 2 and left.shape[1] == right.shape[0]:
        shape = (left.shape[0], right.shape[1])
    else:
        shape = checks.product_shape(a, b)

    if added != NULL and bias is not None:
        if added.type != left.type or added.ndim != 1 or added.shape[0] != right.shape[right.ndim - 1]:
            checks.bias(a, b, bias)
        if out is not None:
            checks.apart(operation, out, bias=bias)

    if out is None:
        if x.accumulate:
            checks.needs_out(operation, out, x.accumulate)
        target = out = new(shape, left.type, &data)
        look(target, &result)
    else:
        fit = fits(out, &result, left.type, shape)
        if not (fit and apart(&result, &left) and apart(&result, &right)):
            checks.output(operation, out, shape, a.dtype, {"a": a, "b": b})
        target = out
        if not (fit and result.strides[result.ndim - 1] == 1):
            if plain and fit and result.ndim == 2 and left.ndim == 2 and right.ndim == 2 and result.strides[0] == 1:
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
        failed = multiply(&left, &right, &result, batch, x)
    if failed:
        raise MemoryError(f"{operation}: no memory to pack the matrices into")
    if target is not out:
        out[...] = target
    return out
