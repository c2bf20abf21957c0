# Operations along the last dim: all others are rows.


cdef dim row_length(str operation, object x, Array *a, dim *rows) except -1:
    """Return the length of a row and how many there are; refuse a 0-d array."""
    cdef dim i
    if a.ndim == 0:
        checks.last_dim(operation, x)
    rows[0] = 1
    for i in range(a.ndim - 1):
        rows[0] *= a.shape[i]
    return a.shape[a.ndim - 1]


cdef int need(str operation, str name, object x, object shape, str reason) except -1:
    """Refuse an array of the wrong shape."""
    if x.shape != shape:
        checks.shape(operation, name, x, shape, reason)
    return 0


def log_sum_exp(x, axis=-1, bint keepdims=False):
    """Compute log(sum(exp(x))) along one axis, see reference.log_sum_exp."""
    cdef Array a
    cdef dim rows, n
    x = take("log_sum_exp", "x", x, &a)
    (over,) = checks.axes("log_sum_exp", axis, a.ndim)
    shape = checks.reduced_shape(x.shape, (over,), keepdims)
    x = take_rows("log_sum_exp", "x", np.moveaxis(x, over, -1), &a)
    n = row_length("log_sum_exp", x, &a, &rows)
    cdef char *to
    result = new(shape, a.type, &to)
    with nogil:
        chosen[a.type].log_sum_exp(rows, n, a.data, to)
    return result


def softmax(x):
    """Normalise exp(x) along the last dim, see reference.softmax."""
    cdef Array a
    cdef dim rows, n
    x = take_rows("softmax", "x", x, &a)
    n = row_length("softmax", x, &a, &rows)
    cdef char *to
    y = new(x.shape, a.type, &to)
    with nogil:
        chosen[a.type].softmax(rows, n, a.data, to)
    return y


def softmax_backward(grad, y):
    """Turn the gradient of y = softmax(x) into that of x, see reference.softmax_backward."""
    cdef Array g, a
    cdef dim rows, n
    grad, y = take_pair("softmax_backward", "y", grad, y, &g, &a)
    n = row_length("softmax_backward", y, &a, &rows)
    cdef char *to
    dx = new(y.shape, a.type, &to)
    with nogil:
        chosen[a.type].softmax_backward(rows, n, g.data, a.data, to)
    return dx


cdef object take_labels(str operation, object labels, dim n, dim classes):
    """Return labels as contiguous int64, each of them a class."""
    cdef Py_buffer view
    cdef const int64_t *label
    cdef dim i
    cdef bint good
    if type(labels) is ndarray and labels.dtype is INT64 and labels.shape == (n,) and (
        labels.flags.c_contiguous and labels.flags.aligned
    ):
        PyObject_GetBuffer(labels, &view, PyBUF_STRIDES)
        label = <const int64_t *>view.buf
        good = True
        for i in range(n):
            good = good and 0 <= label[i] < classes
        PyBuffer_Release(&view)
        if good:
            return labels
    return checks.labels(operation, labels, n, classes)


def cross_entropy(logits, labels, bint gradient=True):
    """Compute -log softmax(logits)[label] of each row, see reference.cross_entropy."""
    cdef Array a
    logits = take_rows("cross_entropy", "logits", logits, &a)
    if a.ndim != 2:
        checks.matrix("cross_entropy", "logits", logits)
    labels = take_labels("cross_entropy", labels, a.shape[0], a.shape[1])
    cdef char *loss
    cdef char *total
    cdef char *e = NULL
    losses, sums, exponentials = new(a.shape[0], a.type, &loss), new(a.shape[0], 1, &total), None
    if gradient:
        exponentials = new((a.shape[0], a.shape[1]), a.type, &e)
    cdef char *label = address(labels)
    with nogil:
        chosen[a.type].cross_entropy(a.shape[0], a.shape[1], a.data, <int64_t *>label, loss, <double *>total, e)
    return losses, sums, exponentials


def cross_entropy_backward(exponentials, labels, sums, grad_losses):
    """Compute the gradient of the logits, see reference.cross_entropy_backward."""
    cdef Array a, s, g
    operation = "cross_entropy_backward"
    exponentials = take_rows(operation, "exponentials", exponentials, &a)
    grad_losses = take_rows(operation, "grad_losses", grad_losses, &g)
    if a.type != g.type:
        checks.floats(operation, exponentials=exponentials, grad_losses=grad_losses)
    if a.ndim != 2:
        checks.matrix(operation, "exponentials", exponentials)
    labels = take_labels(operation, labels, a.shape[0], a.shape[1])
    sums = take_rows(operation, "sums", sums, &s)
    need(operation, "sums", sums, (a.shape[0],), "one per row of exponentials")
    need(operation, "grad_losses", grad_losses, (a.shape[0],), "one per row of exponentials")
    if s.type == 0:
        sums = take_rows(operation, "sums", sums.astype(np.float64), &s)
    cdef char *to
    dlogits = new((a.shape[0], a.shape[1]), a.type, &to)
    cdef char *label = address(labels)
    with nogil:
        chosen[a.type].cross_entropy_backward(
            a.shape[0], a.shape[1], a.data, <int64_t *>label, <double *>s.data, g.data, to)
    return dlogits


def layer_norm(x, gain, bias, double eps):
    """Normalise, scale and shift each row, see reference.layer_norm."""
    cdef Array a, w, b
    cdef dim rows, d
    x = take_rows("layer_norm", "x", x, &a)
    gain = take_rows("layer_norm", "gain", gain, &w)
    bias = take_rows("layer_norm", "bias", bias, &b)
    if not a.type == w.type == b.type:
        checks.floats("layer_norm", x=x, gain=gain, bias=bias)
    d = row_length("layer_norm", x, &a, &rows)
    need("layer_norm", "gain", gain, (d,), "the last dim of x")
    need("layer_norm", "bias", bias, (d,), "the last dim of x")
    shape = x.shape
    cdef char *to
    cdef char *means
    cdef char *rstds
    y = new(shape, a.type, &to)
    mean, rstd = new(shape[: a.ndim - 1], a.type, &means), new(shape[: a.ndim - 1], a.type, &rstds)
    with nogil:
        chosen[a.type].layer_norm(rows, d, a.data, w.data, b.data, eps, to, means, rstds)
    return y, mean, rstd


def layer_norm_backward(grad, x, gain, mean, rstd):
    """Compute the gradients of x, gain and bias, see reference.layer_norm_backward."""
    cdef Array g, a, w, m, s
    cdef dim rows, d
    cdef int failed
    operation = "layer_norm_backward"
    grad, x = take_pair(operation, "x", grad, x, &g, &a)
    gain = take_rows(operation, "gain", gain, &w)
    mean = take_rows(operation, "mean", mean, &m)
    rstd = take_rows(operation, "rstd", rstd, &s)
    if not a.type == w.type == m.type == s.type:
        checks.floats(operation, grad=grad, x=x, gain=gain, mean=mean, rstd=rstd)
    d = row_length(operation, x, &a, &rows)
    shape = x.shape
    need(operation, "gain", gain, (d,), "the last dim of x")
    need(operation, "mean", mean, shape[: a.ndim - 1], "one per row of x")
    need(operation, "rstd", rstd, shape[: a.ndim - 1], "one per row of x")
    cdef char *to
    cdef char *gains
    cdef char *biases
    dx, dgain, dbias = new(shape, a.type, &to), new(d, a.type, &gains), new(d, a.type, &biases)
    with nogil:
        failed = chosen[a.type].layer_norm_backward(
            rows, d, g.data, a.data, w.data, m.data, s.data, to, gains, biases)
    if failed:
        raise MemoryError("layer_norm_backward: no memory for two rows")
    return dx, dgain, dbias
