# Update rules on flat vectors, in place.


cdef bint flat(object x, Array *a, bint written) except -1:
    """Describe a vector; say whether it is contiguous, and writable where it is to be updated."""
    return look(x, a) and a.ndim == 1 and a.contiguous and not (written and a.read_only)


cdef bint alike(Array *a, Array *b) noexcept:
    """Say whether two vectors have one type and length, and do not share memory."""
    return a.type == b.type and a.size == b.size and apart(a, b)


def sgd(weights, gradients, momentum_buffer, double lr, double momentum, double weight_decay, double scale):
    """Step down the gradient, see reference.sgd."""
    cdef Array w, g, b
    cdef double squares
    cdef char *buffer = NULL
    cdef bint good = flat(weights, &w, True) and flat(gradients, &g, False) and alike(&w, &g)
    vectors = {"weights": weights, "gradients": gradients}
    written = ("weights",)
    if momentum_buffer is not None:
        good = good and flat(momentum_buffer, &b, True) and alike(&w, &b) and alike(&g, &b)
        vectors["momentum_buffer"] = momentum_buffer
        written = ("weights", "momentum_buffer")
    if not good:
        weights, gradients, *rest = checks.vectors("sgd", written, **vectors)
        look(weights, &w)
        look(gradients, &g)
        if rest:
            look(rest[0], &b)
    if momentum_buffer is not None:
        buffer = b.data
    with nogil:
        squares = chosen[w.type].sgd(w.size, w.data, g.data, buffer, lr, momentum, weight_decay, scale)
    return squares


def adamw(
    weights, gradients, m, v, step, double lr, double beta1, double beta2, double eps, double weight_decay, double scale
):
    """Apply AdamW, see reference.adamw."""
    cdef Array w, g, first, second
    cdef double count = step, squares
    cdef bint good = flat(weights, &w, True) and flat(gradients, &g, False)
    good = good and flat(m, &first, True) and flat(v, &second, True)
    good = good and alike(&w, &g) and alike(&w, &first) and alike(&w, &second)
    good = good and alike(&g, &first) and alike(&g, &second) and alike(&first, &second)
    if not good:
        weights, gradients, m, v = checks.vectors(
            "adamw", ("weights", "m", "v"), weights=weights, gradients=gradients, m=m, v=v
        )
        look(weights, &w)
        look(gradients, &g)
        look(m, &first)
        look(v, &second)
    checks.first_step(step)
    with nogil:
        squares = chosen[w.type].adamw(
            w.size, w.data, g.data, first.data, second.data, count, lr, beta1, beta2, eps, weight_decay, scale)
    return squares
