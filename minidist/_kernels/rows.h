/* Operations on the rows of a matrix: softmax and its relatives, and layer norm.
 *
 * NumPy makes several passes over the whole matrix for each of these, through main memory. Here a row stays in the L1
 * cache for all its passes: loaded once, stored once.
 */
#define SLICE ((dim)512)

/* The sum of exp(x[i] - top), by slices, without a place for all the exponentials. */
static real NAME(exponentials_sum)(const real *x, dim n, real top)
{
    real slice[SLICE], total = 0;
    for (dim i = 0; i < n; i += SLICE) {
        const dim size = MIN(SLICE, n - i);
        for (dim j = 0; j < size; j++) slice[j] = exponential(x[i + j] - top);
        total += NAME(row_sum)(slice, size);
    }
    return total;
}

static void NAME(log_sum_exp)(dim rows, dim n, const void *start, void *result)
{
    const real *x = start;
    real *out = result;
    for (dim r = 0; r < rows; r++, x += n) {
        const real top = n ? NAME(row_max)(x, n) : -INFINITY;
        out[r] = isinf(top) ? top : top + (real)log(NAME(exponentials_sum)(x, n, top)); /* inf - inf would be nan */
    }
}

static void NAME(softmax)(dim rows, dim n, const void *start, void *result)
{
    const real *restrict x = start;
    real *restrict y = result;
    for (dim r = 0; n && r < rows; r++, x += n, y += n) {
        const real top = NAME(row_max)(x, n);
        for (dim i = 0; i < n; i++) y[i] = exponential(x[i] - top);
        const real share = 1 / NAME(row_sum)(y, n);
        for (dim i = 0; i < n; i++) y[i] *= share;
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

static void NAME(cross_entropy)(
    dim rows, dim classes, const void *logits, const int64_t *labels, void *losses, double *log_sum_exp)
{
    const real *x = logits;
    real *loss = losses;
    for (dim r = 0; r < rows; r++, x += classes) {
        const real top = NAME(row_max)(x, classes);
        const double log_sum = log((double)NAME(exponentials_sum)(x, classes, top));
        loss[r] = (real)(log_sum - (x[labels[r]] - top)); /* relative to the largest: 1e8 and 0.69 never meet */
        log_sum_exp[r] = top + log_sum;
    }
}

static void NAME(cross_entropy_backward)(
    dim rows, dim classes, const void *logits, const int64_t *labels, const double *log_sum_exp,
    const void *grad_losses, void *result)
{
    const real *restrict x = logits, *grad = grad_losses;
    real *restrict dx = result;
    for (dim r = 0; r < rows; r++, x += classes, dx += classes) {
        const real near = (real)log_sum_exp[r], rest = (real)(log_sum_exp[r] - near), g = grad[r];
        for (dim i = 0; i < classes; i++) dx[i] = g * exponential(x[i] - near - rest);
        dx[labels[r]] = g * (exponential(x[labels[r]] - near - rest) - 1);
    }
}

static void NAME(layer_norm)(
    dim rows, dim d, const void *start, const void *gains, const void *biases, double eps,
    void *result, void *means, void *rstds)
{
    const real *restrict x = start, *restrict gain = gains, *restrict bias = biases;
    real *restrict y = result, *mean = means, *rstd = rstds;
    for (dim r = 0; r < rows; r++, x += d, y += d) {
        const real m = NAME(row_sum)(x, d) / MAX(d, 1);
        for (dim i = 0; i < d; i++) y[i] = x[i] - m; /* the variance of what is left: no difference of large numbers */
        const real s = (real)(1 / sqrt((double)NAME(row_dot)(y, y, d) / MAX(d, 1) + eps));
        for (dim i = 0; i < d; i++) y[i] = y[i] * s * gain[i] + bias[i];
        mean[r] = m;
        rstd[r] = s;
    }
}

/* Returns 0, or -1 when there is no memory for three rows. */
static int NAME(layer_norm_backward)(
    dim rows, dim d, const void *grad, const void *start, const void *gains, const void *means, const void *rstds,
    void *dx_start, void *dgain_start, void *dbias_start)
{
    const real *restrict g = grad, *restrict x = start, *restrict gain = gains, *mean = means, *rstd = rstds;
    real *restrict dx = dx_start, *restrict dgain = dgain_start, *restrict dbias = dbias_start;
    real *memory = malloc(3 * d * sizeof(real) + 1);
    if (!memory) return -1;
    real *restrict normed = memory, *restrict gain_part = memory + d, *restrict bias_part = memory + 2 * d;
    memset(dgain, 0, d * sizeof(real));
    memset(dbias, 0, d * sizeof(real));
    memset(gain_part, 0, 2 * d * sizeof(real));
    for (dim r = 0; r < rows; r++, g += d, x += d, dx += d) {
        for (dim i = 0; i < d; i++) {
            normed[i] = (x[i] - mean[r]) * rstd[r];
            dx[i] = g[i] * gain[i];
            gain_part[i] += g[i] * normed[i];
            bias_part[i] += g[i];
        }
        const real along_one = NAME(row_sum)(dx, d) / d, along_normed = NAME(row_dot)(dx, normed, d) / d;
        for (dim i = 0; i < d; i++) dx[i] = (dx[i] - along_one - normed[i] * along_normed) * rstd[r];
        if (r % STRETCH_ROWS == STRETCH_ROWS - 1 || r == rows - 1) /* partial sums, as in reductions.h */
            for (dim i = 0; i < d; i++) {
                dgain[i] += gain_part[i];
                dbias[i] += bias_part[i];
                gain_part[i] = bias_part[i] = 0;
            }
    }
    free(memory);
    return 0;
}
