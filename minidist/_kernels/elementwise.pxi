# Activations: flat loops over contiguous memory.


cdef object take_pair(str operation, str name, object grad, object x, Array *g, Array *a):
    """Describe a gradient and the array it belongs to; return both, or refuse them if they do not match."""
    grad = take_rows(operation, "grad", grad, g)
    x = take_rows(operation, name, x, a)
    if g.type != a.type:
        checks.floats(operation, **{"grad": grad, name: x})
    if not same_shape(g, a):
        checks.shape(operation, "grad", grad, x.shape, f"the shape of {name}")
    return grad, x


def gelu(x):
    """Apply GELU, see reference.gelu."""
    cdef Array a
    x = take_rows("gelu", "x", x, &a)
    cdef char *to
    y = new(x.shape, a.type, &to)
    with nogil:
        chosen[a.type].gelu(a.size, a.data, to)
    return y


def gelu_backward(grad, x):
    """Turn the gradient of gelu(x) into that of x, see reference.gelu_backward."""
    cdef Array g, a
    grad, x = take_pair("gelu_backward", "x", grad, x, &g, &a)
    cdef char *to
    dx = new(x.shape, a.type, &to)
    with nogil:
        chosen[a.type].gelu_backward(a.size, g.data, a.data, to)
    return dx


def relu(x):
    """Compute max(x, 0), see reference.relu."""
    cdef Array a
    x = take_rows("relu", "x", x, &a)
    cdef char *to
    y = new(x.shape, a.type, &to)
    with nogil:
        chosen[a.type].relu(a.size, a.data, to)
    return y


def relu_backward(grad, y):
    """Pass the gradient on where y is positive, see reference.relu_backward."""
    cdef Array g, a
    grad, y = take_pair("relu_backward", "y", grad, y, &g, &a)
    cdef char *to
    dx = new(y.shape, a.type, &to)
    with nogil:
        chosen[a.type].relu_backward(a.size, g.data, a.data, to)
    return dx
