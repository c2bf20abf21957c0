# The steps of the ladder, for minidist._kernels.ladder.


def ladder_steps():
    """Name the steps in order, the slowest first."""
    names = []
    cdef int i = 0
    while minidist_ladder_names[i] != NULL:
        names.append(minidist_ladder_names[i].decode())
        i += 1
    return names


def climb(int step, a, b):
    """Multiply two C-ordered float32 matrices by one step of the ladder, with the instructions of the chosen path."""
    cdef Array left, right
    cdef char *data
    a = take_rows("ladder", "a", a, &left)
    b = take_rows("ladder", "b", b, &right)
    if left.type or right.type or left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ValueError(
            f"the ladder multiplies float32 matrices (m, k) @ (k, n), got {a.dtype} {a.shape} and {b.dtype} {b.shape}"
        )
    c = new((left.shape[0], right.shape[1]), 0, &data)
    with nogil:
        chosen[0].ladder[step](
            left.shape[0], right.shape[1], left.shape[1], <float *>left.data, <float *>right.data, <float *>data)
    return c
