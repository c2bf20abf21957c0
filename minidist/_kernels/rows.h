/* Operations on the rows of a matrix: softmax and its relatives, and layer norm.
 *
 * NumPy makes several passes over the whole matrix for each of these, through main memory. Here a row stays in the L1
 * cache for all its passes: loaded once, stored once.
 */
#define SLICE (32 * LANES) /* each lane sums 32 numbers in this type; the sums of slices are added in float64 */

/* The sum of exp(x[i] - top); each exponential is also stored in y, where y is given. */
static inline ALWAYS_INLINE double NAME(exponentials)(const real *x, dim n, real top, real *y)
{
    double total = 0;
    for (dim start = 0; start < n; start += SLICE) {
        const dim end = MIN(n, start + SLICE);
        vec sum = {0};
        dim i = start;
        for (; i + 2 * LANES <= end; i += 2 * LANES) {
            vec e[2] = {load(x + i) - top, load(x + i + LANES) - top};
            NAME(two_exponentials)(e);
            sum += e[0];
            sum += e[1];
            if (y) store(y + i, e[0]), store(y + i + LANES, e[1]);
        }
        for (; i < end; i += LANES) {
            const dim part = MIN(LANES, end - i);
            const vec e = exponential(some_or(x + i, part, -INFINITY) - top);
            sum += e;
            if (y) store_some(y + i, e, part);
        }
        total += NAME(lanes_sum)(sum);
    }
    return total;
}

static void NAME(log_sum_exp)(dim rows, dim n, const void *start, void *result)
{
    const real *x = start;
    real *out = result;
    for (dim r = 0; r < rows; r++, x += n) {
        const real top = n ? NAME(row_max)(x, n) : -INFINITY;
        out[r] = isinf(top) ? top : top + (real)log(NAME(exponentials)(x, n, top, NULL)); /* inf - inf would be nan */
    }
}

static void NAME(softmax)(dim rows, dim n, const void *start, void *result)
{
    const real *x = start;
    real *y = result;
    for (dim r = 0; n && r < rows; r++, x += n, y += n) {
        const real top = NAME(row_max)(x, n), share = (real)(1 / NAME(exponentials)(x, n, top, y));
        for (dim i = 0; i < n; i += LANES) {
            const dim part = MIN(LANES, n - i);
            store_some(y + i, some(y + i, part) * share, part);
        }
    }
}

static void NAME(softmax_backward)(dim rows, dim n, const void *grad, const void *start, void *result)
{
    const real *restrict g = grad, *restrict y = start;
    real *restrict dx = result;
    for (dim r = 0; r < rows; r++, g += n, y += n, dx += n) {
        const real mean = NAME(row_dot)(g, y, n);
        for (dim i = 0; i < n; i++) dx[i] = y[i] * (g[i] - mean);
    }
}

/* Where `exponentials` is given, backward will not have to compute them again. Some rows go together, step by step: each
 * step of a row ends by waiting for its last additions, and meanwhile the processor begins with the next row's. */
#define TOGETHER ((dim)8)

static void NAME(cross_entropy)(
    dim rows, dim classes, const void *logits, const int64_t *labels, void *losses, double *sums, void *exponentials)
{
    const real *x = logits;
    real *loss = losses, *e = exponentials;
    for (dim start = 0; start < rows; start += TOGETHER) {
        const dim end = MIN(rows, start + TOGETHER);
        real top[TOGETHER];
        for (dim r = start; r < end; r++) top[r - start] = NAME(row_max)(x + r * classes, classes);
        for (dim r = start; r < end; r++)
            sums[r] = NAME(exponentials)(x + r * classes, classes, top[r - start], e ? e + r * classes : NULL);
        for (dim r = start; r < end; r++) /* relative to the largest: 1e8 and 0.69 never meet */
            loss[r] = (real)(log(sums[r]) - (x[r * classes + labels[r]] - top[r - start]));
    }
}

/* From the last row to the first: what forward wrote last is still in the cache. */
static void NAME(cross_entropy_backward)(
    dim rows, dim classes, const void *exponentials, const int64_t *labels, const double *sums, const void *grad_losses,
    void *result)
{
    const real *grad = grad_losses;
    for (dim r = rows - 1; r >= 0; r--) {
        const real *restrict e = (const real *)exponentials + r * classes;
        real *restrict dx = (real *)result + r * classes;
        const double share = grad[r] / sums[r];
        for (dim i = 0; i < classes; i += LANES) {
            const dim part = MIN(LANES, classes - i);
            store_some(dx + i, some(e + i, part) * (real)share, part);
        }
        dx[labels[r]] = (real)(e[labels[r]] * share - grad[r]); /* in float64: of nearly equal numbers little is left */
    }
}

static void NAME(layer_norm)(
    dim rows, dim d, const void *start, const void *gains, const void *biases, double eps,
    void *result, void *means, void *rstds)
{
    const real *x = start, *gain = gains, *bias = biases;
    real *y = result, *mean = means, *rstd = rstds;
    for (dim r = 0; r < rows; r++, x += d, y += d) {
        const real m = NAME(row_sum)(x, d) / MAX(d, 1);
        double squares = 0; /* of what is left without the mean: no difference of large numbers */
        for (dim start = 0; start < d; start += SLICE) {
            const dim end = MIN(d, start + SLICE);
            vec sum = {0};
            for (dim i = start; i < end; i += LANES) {
                const vec centred = some_or(x + i, MIN(LANES, end - i), m) - m;
                sum += centred * centred;
            }
            squares += NAME(lanes_sum)(sum);
        }
        const real s = (real)(1 / sqrt(squares / MAX(d, 1) + eps));
        for (dim i = 0; i < d; i += LANES) {
            const dim part = MIN(LANES, d - i);
            store_some(y + i, (some(x + i, part) - m) * s * some(gain + i, part) + some(bias + i, part), part);
        }
        mean[r] = m;
        rstd[r] = s;
    }
}

/* The gradients of `count` rows together, 1 or 2, so that a column's gain and bias are loaded and stored once for both. */
static inline ALWAYS_INLINE void NAME(layer_norm_rows_backward)(
    const int count, dim d, const real *g, const real *x, const real *gain, const real *mean, const real *rstd,
    real *dx, real *dgain, real *dbias)
{
    double along_one[2] = {0}, along_normed[2] = {0};
    for (dim start = 0; start < d; start += SLICE) {
        const dim end = MIN(d, start + SLICE);
        vec ones[2] = {{0}}, norms[2] = {{0}};
        for (dim i = start; i < end; i += LANES) {
            const dim part = MIN(LANES, end - i);
            vec gain_sum = some(dgain + i, part), bias_sum = some(dbias + i, part);
            UNROLL for (int r = 0; r < count; r++) {
                const vec grad = some(g + r * d + i, part), normed = (some(x + r * d + i, part) - mean[r]) * rstd[r];
                const vec scaled = grad * some(gain + i, part);
                gain_sum += grad * normed;
                bias_sum += grad;
                ones[r] += scaled;
                norms[r] += scaled * normed;
            }
            store_some(dgain + i, gain_sum, part);
            store_some(dbias + i, bias_sum, part);
        }
        UNROLL for (int r = 0; r < count; r++) {
            along_one[r] += NAME(lanes_sum)(ones[r]);
            along_normed[r] += NAME(lanes_sum)(norms[r]);
        }
    }
    UNROLL for (int r = 0; r < count; r++) {
        const real one = (real)(along_one[r] / d), slope = (real)(along_normed[r] / d) * rstd[r];
        for (dim i = 0; i < d; i += LANES) {
            const dim part = MIN(LANES, d - i);
            const vec scaled = some(g + r * d + i, part) * some(gain + i, part), centred = some(x + r * d + i, part) - mean[r];
            store_some(dx + r * d + i, (scaled - one - centred * slope) * rstd[r], part);
        }
    }
}

/* Returns 0, or -1 when there is no memory for two rows. */
static int NAME(layer_norm_backward)(
    dim rows, dim d, const void *grad, const void *start, const void *gains, const void *means, const void *rstds,
    void *dx_start, void *dgain_start, void *dbias_start)
{
    const real *g = grad, *x = start, *gain = gains, *mean = means, *rstd = rstds;
    real *dx = dx_start, *dgain = dgain_start, *dbias = dbias_start;
    real *gain_part = calloc(2 * d + 1, sizeof(real)), *bias_part = gain_part + d;
    if (!gain_part) return -1;
    memset(dgain, 0, d * sizeof(real));
    memset(dbias, 0, d * sizeof(real));
    for (dim r = 0, end; r < rows; r = end) { /* partial sums, as in reductions.h */
        end = MIN(rows, r + STRETCH_ROWS);
        for (; r + 2 <= end; r += 2)
            NAME(layer_norm_rows_backward)(
                2, d, g + r * d, x + r * d, gain, mean + r, rstd + r, dx + r * d, gain_part, bias_part);
        if (r < end)
            NAME(layer_norm_rows_backward)(
                1, d, g + r * d, x + r * d, gain, mean + r, rstd + r, dx + r * d, gain_part, bias_part);
        for (dim i = 0; i < d; i++) {
            dgain[i] += gain_part[i];
            dbias[i] += bias_part[i];
            gain_part[i] = bias_part[i] = 0;
        }
    }
    free(gain_part);
    return 0;
}
