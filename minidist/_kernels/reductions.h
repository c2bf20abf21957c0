/* Sums and largest elements: of a row (numbers that follow each other) and down columns.
 *
 * Adding n numbers one after the other waits for each addition, and its rounding error grows with n. Both are cured by
 * many partial sums. A short stretch is summed in UNROLLED vectors of LANES partial sums each, so that no addition waits
 * for the one before; a long one is cut in halves, summed apart and added, so that the error grows with log(n).
 * (Higham, "The accuracy of floating point summation", 1993; NumPy does the same in stretches of 128.)
 */
#define UNROLLED 8
#define STRETCH (16 * UNROLLED * LANES)  /* each partial sum takes 16 numbers */
#define STRETCH_ROWS 64

static inline real NAME(lanes_sum)(vec v)
{
    real lane[LANES];
    store(lane, v);
    for (dim width = LANES / 2; width > 0; width /= 2)
        for (dim i = 0; i < width; i++) lane[i] += lane[i + width];
    return lane[0];
}

/* The sum of x[i], or of x[i] * y[i] where y is given. */
static inline ALWAYS_INLINE real NAME(stretch_sum)(const real *x, const real *y, dim n, const int product)
{
#define TERM(at) (product ? load(x + (at)) * load(y + (at)) : load(x + (at)))
    vec total[UNROLLED];
    UNROLL for (int u = 0; u < UNROLLED; u++) total[u] = (vec){0};
    dim i = 0;
    for (; i + UNROLLED * LANES <= n; i += UNROLLED * LANES)
        UNROLL for (int u = 0; u < UNROLLED; u++) total[u] += TERM(i + u * LANES);
    UNROLL for (int width = UNROLLED / 2; width > 0; width /= 2)
        UNROLL for (int u = 0; u < width; u++) total[u] += total[u + width];
    for (; i + LANES <= n; i += LANES) total[0] += TERM(i);
    if (i < n) {
        vec tail = load_part(x + i, n - i);
        total[0] += product ? tail * load_part(y + i, n - i) : tail;
    }
    return NAME(lanes_sum)(total[0]);
#undef TERM
}

static real NAME(row_sum)(const real *x, dim n)
{
    if (n <= STRETCH) return NAME(stretch_sum)(x, x, n, 0);
    const dim half = n / 2 / LANES * LANES;
    return NAME(row_sum)(x, half) + NAME(row_sum)(x + half, n - half);
}

static real NAME(row_dot)(const real *x, const real *y, dim n)
{
    if (n <= STRETCH) return NAME(stretch_sum)(x, y, n, 1);
    const dim half = n / 2 / LANES * LANES;
    return NAME(row_dot)(x, y, half) + NAME(row_dot)(x + half, y + half, n - half);
}

/* The larger of two in each lane; nan wins, and the first of equals stays. Bits are chosen by a mask of all 1 or 0. */
static inline vec NAME(larger)(vec x, vec y)
{
    lanes_mask take_y = (y > x) | (y != y);
    return (vec)((take_y & (lanes_mask)y) | (~take_y & (lanes_mask)x));
}
static inline real NAME(larger_of_two)(real x, real y) { return y > x || y != y ? y : x; }

static real NAME(row_max)(const real *x, dim n)
{
    real best = x[0];
    dim i = 0;
    if (n >= LANES) {
        vec top[4];
        UNROLL for (int u = 0; u < 4; u++) top[u] = load(x);
        for (; i + 4 * LANES <= n; i += 4 * LANES)
            UNROLL for (int u = 0; u < 4; u++) top[u] = NAME(larger)(top[u], load(x + i + u * LANES));
        for (; i + LANES <= n; i += LANES) top[0] = NAME(larger)(top[0], load(x + i));
        top[0] = NAME(larger)(NAME(larger)(top[0], top[1]), NAME(larger)(top[2], top[3]));
        real lane[LANES];
        store(lane, top[0]);
        UNROLL for (dim width = LANES / 2; width > 0; width /= 2)
            for (dim l = 0; l < width; l++) lane[l] = NAME(larger_of_two)(lane[l], lane[l + width]);
        best = lane[0];
    }
    for (; i < n; i++) best = NAME(larger_of_two)(best, x[i]);
    return best;
}

/* Where the first largest number of a row is: the best stretch by row_max, then the place in it. */
static dim NAME(row_argmax)(const real *x, dim n)
{
    const dim stretch = 1024;
    real best = x[0];
    dim from = 0;
    for (dim i = 0; i < n && best == best; i += stretch) {
        real top = NAME(row_max)(x + i, MIN(stretch, n - i));
        if (top > best || top != top) {
            best = top;
            from = i;
        }
    }
    while (best == best ? x[from] != best : x[from] == x[from]) from++;
    return from;
}

/* Sum `count` rows, `step` apart, into `width` <= UNROLLED vectors; the last vector may have `part` numbers only. */
static inline ALWAYS_INLINE void NAME(rows_down)(
    const real *x, dim count, dim step, const int width, dim part, const int is_max, vec *total)
{
    for (dim r = 0; r < count; r++, x += step)
        UNROLL for (int u = 0; u < width; u++) {
            vec next = part ? load_part(x + u * LANES, part) : load(x + u * LANES);
            total[u] = is_max ? NAME(larger)(total[u], next) : total[u] + next;
        }
}

static void NAME(columns_sum)(const real *x, dim count, dim step, int width, dim part, vec *total)
{
    for (int u = 0; u < width; u++) total[u] = (vec){0};
    if (count > STRETCH_ROWS) {
        vec second[UNROLLED];
        NAME(columns_sum)(x, count / 2, step, width, part, total);
        NAME(columns_sum)(x + count / 2 * step, count - count / 2, step, width, part, second);
        for (int u = 0; u < width; u++) total[u] += second[u];
    } else if (width == UNROLLED) NAME(rows_down)(x, count, step, UNROLLED, 0, 0, total);
    else if (part) NAME(rows_down)(x, count, step, 1, part, 0, total);
    else NAME(rows_down)(x, count, step, 1, 0, 0, total);
}

static void NAME(columns_max)(const real *x, dim count, dim step, int width, dim part, vec *total)
{
    for (int u = 0; u < width; u++) total[u] = part ? load_part(x, part) : load(x + u * LANES);
    if (width == UNROLLED) NAME(rows_down)(x, count, step, UNROLLED, 0, 1, total);
    else if (part) NAME(rows_down)(x, count, step, 1, part, 1, total);
    else NAME(rows_down)(x, count, step, 1, 0, 1, total);
}

/* Reduce the middle dim of x (outer, count, inner) into out (outer, inner). */
static inline ALWAYS_INLINE void NAME(reduce)(
    dim outer, dim count, dim inner, const real *x, real *out, int add, const int is_max)
{
    for (dim o = 0; o < outer; o++, x += count * inner, out += inner) {
        if (inner == 1) {
            real value = is_max ? NAME(row_max)(x, count) : NAME(row_sum)(x, count);
            out[0] = add ? out[0] + value : value;
            continue;
        }
        for (dim j = 0; j < inner;) {
            const int width = inner - j >= UNROLLED * LANES ? UNROLLED : 1;
            const dim part = inner - j < LANES ? inner - j : 0;
            vec total[UNROLLED];
            if (is_max) NAME(columns_max)(x + j, count, inner, width, part, total);
            else NAME(columns_sum)(x + j, count, inner, width, part, total);
            for (int u = 0; u < width; u++) {
                real *to = out + j + u * LANES;
                if (part) store_part(to, add ? load_part(to, part) + total[u] : total[u], part);
                else store(to, add ? load(to) + total[u] : total[u]);
            }
            j += part ? part : width * LANES;
        }
    }
}

static void NAME(sum)(dim outer, dim count, dim inner, const void *x, void *out, int add)
{
    NAME(reduce)(outer, count, inner, x, out, add, 0);
}

static void NAME(max)(dim outer, dim count, dim inner, const void *x, void *out)
{
    NAME(reduce)(outer, count, inner, x, out, 0, 1);
}

static void NAME(argmax)(dim outer, dim count, dim inner, const void *start, int64_t *out)
{
    const real *x = start;
    for (dim o = 0; o < outer; o++, x += count * inner, out += inner) {
        if (inner == 1) {
            out[0] = NAME(row_argmax)(x, count);
            continue;
        }
        for (dim j = 0; j < inner; j++) out[j] = 0;
        for (dim r = 1; r < count; r++)
            for (dim j = 0; j < inner; j++) {
                const real best = x[out[j] * inner + j], next = x[r * inner + j];
                if (best == best && (next > best || next != next)) out[j] = r;
            }
    }
}

static double NAME(sum_of_squares)(dim n, const void *start)
{
    const real *x = start;
    double total[16] = {0};
    dim i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) total[l] += (double)x[i + l] * (double)x[i + l];
    for (; i < n; i++) total[0] += (double)x[i] * (double)x[i];
    for (int l = 1; l < 16; l++) total[0] += total[l];
    return total[0];
}
