# Causal attention: q, k and v may be pieces of one array, and their gradients too.


cdef object take_heads(str name, object x, object shape, Array *a, heads *h):
    """Describe an input (batch, heads, time, dim); only a row's numbers must lie side by side, or x is copied."""
    operation = "attention" if name in ("q", "k", "v") else "attention_backward"
    x = take(operation, name, x, a)
    if a.ndim != 4 or shape is not None and x.shape != shape:
        checks.heads(operation, name, x, shape)
    if a.strides[3] != 1 and a.shape[3] > 1:
        x = np.ascontiguousarray(x)
        look(x, a)
    point(a, h)
    return x


cdef void point(Array *a, heads *h) noexcept:
    h.data, h.batch, h.head, h.row = a.data, a.strides[0], a.strides[1], a.strides[2]


cdef int place_heads(str name, object x, Array *grad, heads *h, list inputs) except -1:
    """Describe memory for a gradient; it may be a piece of a larger array, but must be apart from the inputs."""
    cdef Array a, other
    cdef bint good = fits(x, &a, grad.type, inputs[0].shape)
    for one in inputs:
        look(one, &other)
        good = good and apart(&a, &other)
    if not good:
        named = {f"input {i}": one for i, one in enumerate(inputs)}
        checks.output("attention_backward", x, inputs[0].shape, inputs[0].dtype, named)
    if a.strides[3] != 1 and a.shape[3] > 1:
        raise ValueError(f"attention_backward: {name} needs rows that are contiguous, got strides {x.strides}")
    point(&a, h)
    return 0


def attention(q, k, v):
    """Let each position look at itself and those before it, see reference.attention."""
    cdef Array a, b, c, o
    cdef heads hq, hk, hv, ho
    cdef int failed
    cdef double scale
    q = take_heads("q", q, None, &a, &hq)
    shape = q.shape
    k = take_heads("k", k, shape, &b, &hk)
    v = take_heads("v", v, shape, &c, &hv)
    if not a.type == b.type == c.type:
        checks.floats("attention", q=q, k=k, v=v)
    cdef char *data
    cdef char *sums
    out = new((a.shape[0], a.shape[2], a.shape[1], a.shape[3]), a.type, &data).transpose(0, 2, 1, 3)
    log_sum_exp = new(shape[:3], a.type, &sums)
    look(out, &o)
    point(&o, &ho)
    scale = 1 / sqrt(a.shape[3] or 1)
    with nogil:
        failed = chosen[a.type].attention(
            a.shape[0], a.shape[1], a.shape[2], a.shape[3], scale, hq, hk, hv, ho, sums)
    if failed:
        raise MemoryError("attention: no memory for a copy of one head")
    return out, log_sum_exp


def attention_backward(grad, q, k, v, out, log_sum_exp, into=None):
    """Compute the gradients of q, k and v, see reference.attention_backward."""
    cdef Array g, a, b, c, o, l
    cdef heads hg, hq, hk, hv, ho, hx, hy, hz
    cdef int failed
    cdef double scale
    operation = "attention_backward"
    grad = take_heads("grad", grad, None, &g, &hg)
    shape = grad.shape
    q = take_heads("q", q, shape, &a, &hq)
    k = take_heads("k", k, shape, &b, &hk)
    v = take_heads("v", v, shape, &c, &hv)
    out = take_heads("out", out, shape, &o, &ho)
    log_sum_exp = take_rows(operation, "log_sum_exp", log_sum_exp, &l)
    if not g.type == a.type == b.type == c.type == o.type == l.type:
        checks.floats(operation, grad=grad, q=q, k=k, v=v, out=out, log_sum_exp=log_sum_exp)
    need(operation, "log_sum_exp", log_sum_exp, shape[:3], "one for each row of q")
    if into is None:
        dtype = FLOAT64 if g.type else FLOAT32
        into = empty(shape, dtype), empty(shape, dtype), empty(shape, dtype)
    dq, dk, dv = into
    inputs = [grad, q, k, v, out, log_sum_exp]
    place_heads("dq", dq, &g, &hx, inputs)
    place_heads("dk", dk, &g, &hy, inputs)
    place_heads("dv", dv, &g, &hz, inputs)
    scale = 1 / sqrt(g.shape[3] or 1)
    with nogil:
        failed = chosen[g.type].attention_backward(
            g.shape[0], g.shape[1], g.shape[2], g.shape[3], scale,
            hg, hq, hk, hv, ho, l.data, hx, hy, hz)
    if failed:
        raise MemoryError("attention_backward: no memory for copies of one head")
    return dq, dk, dv
