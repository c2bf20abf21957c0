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

/* All lanes become one number: first vectors of 16 bytes, which every path can add and turn, then their numbers. */
static inline ALWAYS_INLINE real NAME(lanes_sum)(vec v)
{
    real lane[LANES];
    store(lane, v);
    quad sum = *(quad *)lane;
    UNROLL for (dim l = SQUARE; l < LANES; l += SQUARE) sum += *(quad *)(lane + l);
#if REAL_BYTES == 4
    sum += SHUFFLE(sum, sum, 2, 3, 0, 1);
#endif
    return sum[0] + sum[1];
}

/* The sum of x[i], or of x[i] * y[i] where y is given. */
static inline ALWAYS_INLINE real NAME(stretch_sum)(const real *x, const real *y, dim n, const int product)
{
#define TERM(at) (product ? load(x + (at)) * load(y + (at)) : load(x + (at)))
    if (n < LANES) { /* too short for a vector */
        real short_total = 0;
        for (dim i = 0; i < n; i++) short_total += product ? x[i] * y[i] : x[i];
        return short_total;
    }
    vec total[UNROLLED];
    UNROLL for (int u = 0; u < UNROLLED; u++) total[u] = (vec){0};
    dim i = 0;
    for (; i + UNROLLED * LANES <= n; i += UNROLLED * LANES)
        UNROLL for (int u = 0; u < UNROLLED; u++) total[u] += TERM(i + u * LANES);
    UNROLL for (int u = 0; u < UNROLLED - 1; u++) 
        if (i + LANES <= n) {
            total[u] += TERM(i);
            i += LANES;
        }
    if (i < n) {
        vec tail = load_part(x + i, n - i);
        total[UNROLLED - 1] += product ? tail * load_part(y + i, n - i) : tail;
    }
    UNROLL for (int width = UNROLLED / 2; width > 0; width /= 2)
        UNROLL for (int u = 0; u < width; u++) total[u] += total[u + width];
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

/* The larger of two in each lane; nan wins: where x is nan, all bits become 1, and that is a nan, too. */
static inline ALWAYS_INLINE vec NAME(larger)(vec x, vec y)
{
    return (vec)((lanes_mask)greater(x, y) | (x != x));
}
static inline ALWAYS_INLINE quad NAME(larger_quad)(quad x, quad y)
{
#if defined(__x86_64__)
    return (quad)((NAME(indices))X86(16, SUFFIX(max))(x, y) | (x != x));
#else
    const NAME(indices) take = (y > x) | (y != y);
    return (quad)((take & (NAME(indices))y) | (~take & (NAME(indices))x));
#endif
}
static inline real NAME(larger_of_two)(real x, real y) { return (y > x) | (y != y) ? y : x; }

static inline ALWAYS_INLINE real NAME(lanes_max)(vec v)
{
    real lane[LANES];
    store(lane, v);
    quad best = *(quad *)lane;
    UNROLL for (dim l = SQUARE; l < LANES; l += SQUARE) best = NAME(larger_quad)(best, *(quad *)(lane + l));
#if REAL_BYTES == 4
    best = NAME(larger_quad)(best, SHUFFLE(best, best, 2, 3, 0, 1));
#endif
    return NAME(larger_of_two)(best[0], best[1]);
}

static real NAME(row_max)(const real *x, dim n)
{
    vec top[4];
    UNROLL for (int u = 0; u < 4; u++) top[u] = every(-INFINITY);
    dim i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        UNROLL for (int u = 0; u < 4; u++) top[u] = NAME(larger)(top[u], load(x + i + u * LANES));
    UNROLL for (int u = 0; u < 3; u++)
        if (i + LANES <= n) {
            top[u] = NAME(larger)(top[u], load(x + i));
            i += LANES;
        }
    if (i < n) top[3] = NAME(larger)(top[3], load_part_or(x + i, n - i, every(-INFINITY)));
    return NAME(lanes_max)(NAME(larger)(NAME(larger)(top[0], top[1]), NAME(larger)(top[2], top[3])));
}

/* Reduce `count` rows, `step` apart, to one of `width` <= COLUMNS numbers. Rows are read from end to end, as they lie
 * in memory, four at a time, so that the totals are loaded and stored once for four numbers. */
#define COLUMNS ((dim)1024)

static inline ALWAYS_INLINE void NAME(rows_down)(
    const real *restrict x, dim count, dim step, dim width, const int is_max, real *restrict total)
{
    memcpy(total, x, width * sizeof(real));
    dim r = 1;
    for (; r + 4 <= count; r += 4) {
        const real *restrict a = x + r * step, *restrict b = a + step, *restrict c = b + step, *restrict d = c + step;
        if (!is_max)
            for (dim j = 0; j < width; j++) total[j] += (a[j] + b[j]) + (c[j] + d[j]);
        else
            for (dim j = 0; j < width; j += LANES) {
                const dim part = MIN(LANES, width - j);
                const vec ab = NAME(larger)(some(a + j, part), some(b + j, part));
                const vec cd = NAME(larger)(some(c + j, part), some(d + j, part));
                store(total + j, NAME(larger)(load(total + j), NAME(larger)(ab, cd)));
            }
    }
    for (; r < count; r++)
        for (dim j = 0; j < width; j++) {
            const real next = x[r * step + j];
            total[j] = is_max ? NAME(larger_of_two)(total[j], next) : total[j] + next;
        }
}

static void NAME(columns_max)(const real *x, dim count, dim step, dim width, real *total)
{
    NAME(rows_down)(x, count, step, width, 1, total);
}

/* The same halves as for a row, so that the error grows with log(count). */
static void NAME(columns_sum)(const real *x, dim count, dim step, dim width, real *restrict total)
{
    if (count <= STRETCH_ROWS) {
        NAME(rows_down)(x, count, step, width, 0, total);
        return;
    }
    real second[COLUMNS];
    NAME(columns_sum)(x, count / 2, step, width, total);
    NAME(columns_sum)(x + count / 2 * step, count - count / 2, step, width, second);
    for (dim j = 0; j < width; j++) total[j] += second[j];
}

/* Reduce the middle dim of x (outer, count, inner) into out (outer, inner). */
static inline ALWAYS_INLINE void NAME(reduce)(
    dim outer, dim count, dim inner, const real *x, real *out, int add, const int is_max)
{
    for (dim o = 0; o < outer; o++, x += count * inner, out += inner) {
        if (inner == 1 || count == 0) {
            for (dim j = 0; j < inner; j++) {
                const real value = count == 0 ? 0 : is_max ? NAME(row_max)(x, count) : NAME(row_sum)(x, count);
                out[j] = add ? out[j] + value : value;
            }
            continue;
        }
        for (dim j = 0; j < inner; j += COLUMNS) {
            const dim width = MIN(COLUMNS, inner - j);
            real total[COLUMNS];
            if (is_max) NAME(columns_max)(x + j, count, inner, width, total);
            else NAME(columns_sum)(x + j, count, inner, width, total);
            if (add) for (dim i = 0; i < width; i++) out[j + i] += total[i];
            else memcpy(out + j, total, width * sizeof(real));
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
