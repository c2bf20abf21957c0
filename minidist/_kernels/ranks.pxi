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

    /* Line r of the ranks' numbers begins `r * step` bytes after `first`. */
    static int all_reached(char *first, dim step, dim count, dim place, int64_t number, int64_t looks)
    {
        for (dim r = 0; r < count; r++)
            if (!reached_number((int64_t *)(first + r * step) + place, number, looks)) return 0;
        return 1;
    }
    /* Tell what this rank is about to do, and look whether all others do the same: 0 not yet, 1 they differ, 2 yes. */
    static int meet_told(char *first, dim step, dim count, dim rank, int64_t number, const int64_t *told, dim known,
                         int64_t looks)
    {
        int64_t *mine = (int64_t *)(first + rank * step);
        memcpy(mine + 2, told, known * sizeof *told);
        store_number(mine, number);
        if (!all_reached(first, step, count, 0, number, looks)) return 0;
        for (dim r = 0; r < count; r++)
            if (memcmp((int64_t *)(first + r * step) + 2, told, known * sizeof *told)) return 1;
        return 2;
    }
    static int meet_done(char *first, dim step, dim count, dim rank, int64_t number, int64_t looks)
    {
        store_number((int64_t *)(first + rank * step) + 1, number);
        return all_reached(first, step, count, 1, number, looks);
    }

    /* What `sum_staged` works on: each rank's row of the scratch holds two blocks, and so many bytes lie between rows. */
    struct staging {
        char *scratch;
        dim row, block; /* bytes */
        const char *x;
        char *out;
        dim nbytes, rank, count;
    };
    /* Where rank r's piece of block t lies: from byte `start` of the block to `stop`, and the block at `at` of x. */
    struct piece { dim at, start, stop; };
    static struct piece piece_of(const struct staging *s, dim t, dim r)
    {
        dim at = t * s->block, length = s->nbytes - at < s->block ? s->nbytes - at : s->block;
        dim share = ((length + s->count - 1) / s->count + 63) / 64 * 64; /* ranks write to different cache lines */
        dim start = r * share < length ? r * share : length;
        return (struct piece){at, start, length - start < share ? length : start + share};
    }
    static char *staged_at(const struct staging *s, dim owner, dim t) { return s->scratch + owner * s->row + t % 2 * s->block; }
    typedef int64_t two __attribute__((vector_size(16), aligned(4), may_alias));
    /* Copy what another core has written, from where this one writes next: so it takes the lines for itself. */
    static void take(char *to, const char *from, dim n)
    {
        dim i = 0;
        for (; i + 64 <= n; i += 64) {
            FETCH_TO_WRITE(from + i + 2048);
            two a = *(const two *)(from + i), b = *(const two *)(from + i + 16), c = *(const two *)(from + i + 32),
                d = *(const two *)(from + i + 48);
            *(two *)(to + i) = a; *(two *)(to + i + 16) = b; *(two *)(to + i + 32) = c; *(two *)(to + i + 48) = d;
        }
        memcpy(to + i, from + i, n - i);
    }
    static void give_others(const struct staging *s, dim t)
    {
        for (dim r = 0; r < s->count; r++) {
            struct piece p = piece_of(s, t, r);
            if (r != s->rank) memcpy(staged_at(s, s->rank, t) + p.start, s->x + p.at + p.start, p.stop - p.start);
        }
    }
    static void sum_own(const struct staging *s, dim t, dim itemsize, void (*sum)(dim, dim, void *const *))
    {
        void *parts[1024];
        struct piece p = piece_of(s, t, s->rank);
        for (dim r = 0; r < s->count; r++)
            parts[r] = r == s->rank ? s->out + p.at + p.start : staged_at(s, r, t) + p.start;
        if (s->x != s->out) memcpy(parts[s->rank], s->x + p.at + p.start, p.stop - p.start);
        sum(s->count, (p.stop - p.start) / itemsize, parts);
    }
    static void fetch_others(const struct staging *s, dim t)
    {
        for (dim r = 0; r < s->count; r++) {
            struct piece p = piece_of(s, t, r);
            if (r != s->rank) take(s->out + p.at + p.start, staged_at(s, s->rank, t) + p.start, p.stop - p.start);
        }
    }
    /* Whoever has met the others t times has all they gave of block t - 1, and all their sums of block t - 2. */
    static dim staged_steps(const struct staging *s, char *first, dim step, int64_t number, const int64_t *told, dim known,
                            dim t, int64_t looks, dim itemsize,
                            void (*sum)(dim, dim, void *const *))
    {
        dim blocks = (s->nbytes + s->block - 1) / s->block;
        int64_t *mine = (int64_t *)(first + s->rank * step);
        if (t == 0) memcpy(mine + 2, told, known * sizeof *told);
        for (; t < blocks + 2; t++) {
            if (t == 1)
                for (dim r = 0; r < s->count; r++)
                    if (memcmp((int64_t *)(first + r * step) + 2, told, known * sizeof *told)) return -1;
            if (t >= 2) fetch_others(s, t - 2);
            if (t >= 1 && t <= blocks) sum_own(s, t - 1, itemsize, sum);
            if (t < blocks) give_others(s, t);
            store_number(mine, number + t);
            if (!looks || !all_reached(first, step, s->count, 0, number + t, looks)) return t;
        }
        return t;
    }
    """
    struct staging:
        char *scratch
        dim row, block
        const char *x
        char *out
        dim nbytes, rank, count
    dim staged_steps(
        const staging *s, char *first, dim step, int64_t number, const int64_t *told, dim known, dim t, int64_t looks,
        dim itemsize, void (*sum)(dim, dim, void *const *) noexcept nogil) noexcept nogil
    void store_number(int64_t *at, int64_t value) noexcept nogil
    int reached_number(const int64_t *at, int64_t value, int64_t looks) noexcept nogil
    int meet_told(
        char *first, dim step, dim count, dim rank, int64_t number, const int64_t *told, dim known,
        int64_t looks) noexcept nogil
    int meet_done(char *first, dim step, dim count, dim rank, int64_t number, int64_t looks) noexcept nogil

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


def address_of(x):
    """Tell where an array's memory begins, see reference.address_of."""
    cdef Py_buffer view
    PyObject_GetBuffer(x, &view, PyBUF_STRIDES)
    cdef uintptr_t at = <uintptr_t>view.buf
    PyBuffer_Release(&view)
    return at


def meet_and_sum(lines, dim rank, int64_t number, told, parts, int64_t looks):
    """Meet the other ranks, sum, and meet again, see reference.meet_and_sum."""
    cdef Array x
    cdef Py_buffer line, facts
    cdef void *start[MAX_VECTORS]
    cdef dim r, count
    cdef int stage
    if not look(parts, &x) or x.ndim != 2 or x.read_only or (x.shape[1] > 1 and x.strides[1] != 1) or (
        type(lines) is not ndarray or lines.dtype is not INT64 or type(told) is not ndarray or told.dtype is not INT64
    ):
        checks.meeting("meet_and_sum", lines, rank, told, parts, MAX_VECTORS)
        look(parts, &x)
    PyObject_GetBuffer(lines, &line, PyBUF_STRIDES)
    PyObject_GetBuffer(told, &facts, PyBUF_STRIDES)
    cdef char *first = <char *>line.buf
    cdef dim step = line.strides[0] if line.ndim == 2 else 0
    cdef int64_t *mine = <int64_t *>facts.buf
    cdef dim known = facts.shape[0] if facts.ndim == 1 else -1
    count = x.shape[0]
    cdef bint good = 0 < count <= MAX_VECTORS and 0 <= rank < count and line.ndim == 2 and not line.readonly
    good = good and line.shape[0] == count and line.strides[1] == 8 and known >= 0 and known + 2 <= line.shape[1]
    good = good and (known < 2 or facts.strides[0] == 8)
    PyBuffer_Release(&line)
    PyBuffer_Release(&facts)
    if not good:
        checks.meeting("meet_and_sum", lines, rank, told, parts, MAX_VECTORS)
    for r in range(count):
        start[r] = x.data + r * x.strides[0] * (8 if x.type else 4)
    with nogil:
        stage = meet_told(first, step, count, rank, number, mine, known, looks)
        if stage == 2:
            chosen[x.type].sum_into_all(count, x.shape[1], start)
            stage += meet_done(first, step, count, rank, number, looks)
    return stage


cdef bint staging_fits(object lines, object told, dim rank, dim step, Array *rows, Array *x, Array *out):
    """Look in a moment whether everything is as `checks.staging` wants it; if not, that says what is wrong."""
    if type(lines) is not ndarray or lines.dtype is not INT64 or type(told) is not ndarray or told.dtype is not INT64:
        return False
    cdef Py_buffer line, facts
    PyObject_GetBuffer(lines, &line, PyBUF_STRIDES)
    PyObject_GetBuffer(told, &facts, PyBUF_STRIDES)
    cdef bint good = line.ndim == 2 and facts.ndim == 1 and not line.readonly
    good = good and line.shape[0] == rows.shape[0] and line.strides[1] == 8 and facts.shape[0] + 2 <= line.shape[1]
    good = good and (facts.shape[0] < 2 or facts.strides[0] == 8)
    PyBuffer_Release(&line)
    PyBuffer_Release(&facts)
    good = good and rows.ndim == 2 and not rows.read_only and 0 < rows.shape[0] <= MAX_VECTORS and rows.shape[1] > 0
    good = good and rows.strides[1] == 1 and rows.shape[1] * (8 if rows.type else 4) % 128 == 0
    good = good and x.type == rows.type and out.type == rows.type and x.ndim == 1 and out.ndim == 1 and x.contiguous
    good = good and out.contiguous and x.size == out.size and not out.read_only
    return good and 0 <= rank < rows.shape[0] and step >= 0


def sum_staged(lines, dim rank, int64_t number, told, scratch, x, out, dim step, int64_t looks):
    """Sum all ranks' x through a scratch that they share, see reference.sum_staged."""
    cdef Array rows, given, result
    cdef Py_buffer line, facts
    if not look(scratch, &rows) or not look(x, &given) or not look(out, &result) or not staging_fits(
        lines, told, rank, step, &rows, &given, &result
    ):
        checks.staging("sum_staged", lines, rank, told, scratch, x, out, step, MAX_VECTORS)
        look(scratch, &rows)
        look(x, &given)
        look(out, &result)
    cdef dim itemsize = 8 if rows.type else 4
    cdef staging s
    s.scratch, s.row, s.block = rows.data, rows.strides[0] * itemsize, rows.shape[1] // 2 * itemsize
    s.x, s.out, s.nbytes, s.rank, s.count = given.data, result.data, given.size * itemsize, rank, rows.shape[0]
    PyObject_GetBuffer(lines, &line, PyBUF_STRIDES)
    PyObject_GetBuffer(told, &facts, PyBUF_STRIDES)
    cdef char *first = <char *>line.buf
    cdef dim between = line.strides[0], known = facts.shape[0]
    cdef int64_t *mine = <int64_t *>facts.buf
    PyBuffer_Release(&line)
    PyBuffer_Release(&facts)
    with nogil:
        step = staged_steps(
            &s, first, between, number, mine, known, step, looks, itemsize, chosen[rows.type].sum_into_all)
    return step


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
