/* Update rules in one pass: each weight, gradient and moment is loaded once and stored once. These loops do so little
 * with each number that memory sets their speed, so one pass is all there is to gain. It goes by stretches that fit into
 * the L1 cache, so that the sum of squares of the gradients, which is reported as their norm, costs no pass of its own. */
#define AT_ONCE 2048 /* numbers of each vector */

/* Add one stretch's sum of squares, and keep what rounding lost of it for the next (Kahan 1965). */
static inline void NAME(add_squares)(dim n, const real *gradients, double *total, double *lost)
{
    const double more = NAME(sum_of_squares)(n, gradients) + *lost, before = *total;
    *total += more;
    *lost = isfinite(*total) ? more - (*total - before) : 0;
}

static void NAME(sgd_stretch)(
    dim n, real *restrict w, const real *restrict g, real *restrict buffer, real lr, real momentum, real weight_decay,
    real scale)
{
    if (buffer) {
        for (dim i = 0; i < n; i++) {
            buffer[i] = momentum * buffer[i] + (scale * g[i] + weight_decay * w[i]);
            w[i] -= lr * buffer[i];
        }
    } else {
        for (dim i = 0; i < n; i++) w[i] -= lr * (scale * g[i] + weight_decay * w[i]);
    }
}

static double NAME(sgd)(
    dim n, void *weights, const void *gradients, void *momentum_buffer, double lr, double momentum, double weight_decay,
    double scale)
{
    real *w = weights, *buffer = momentum_buffer;
    const real *g = gradients;
    double total = 0, lost = 0;
    for (dim i = 0; i < n; i += AT_ONCE) {
        const dim count = MIN(AT_ONCE, n - i);
        NAME(add_squares)(count, g + i, &total, &lost);
        NAME(sgd_stretch)(count, w + i, g + i, buffer ? buffer + i : NULL, (real)lr, (real)momentum,
                          (real)weight_decay, (real)scale);
    }
    return total;
}

struct NAME(adamw_numbers) {
    real beta1, rest1, beta2, rest2, rate, root, eps, decay, scale;
};

static void NAME(adamw_stretch)(
    dim n, real *restrict w, const real *restrict g, real *restrict m, real *restrict v,
    const struct NAME(adamw_numbers) with)
{
    for (dim i = 0; i < n; i++) {
        const real gradient = with.scale * g[i];
        m[i] = with.beta1 * m[i] + with.rest1 * gradient;
        v[i] = with.beta2 * v[i] + with.rest2 * gradient * gradient;
        w[i] -= with.decay * w[i] + with.rate * m[i] / ((real)sqrt(v[i]) * with.root + with.eps);
    }
}

static double NAME(adamw)(
    dim n, void *weights, const void *gradients, void *m_start, void *v_start, double step, double lr,
    double beta1, double beta2, double eps, double weight_decay, double scale)
{
    real *w = weights, *m = m_start, *v = v_start;
    const real *g = gradients;
    const struct NAME(adamw_numbers) with = {
        (real)beta1, (real)(1 - beta1), (real)beta2, (real)(1 - beta2),
        .rate = (real)(lr / (1 - pow(beta1, step))), /* the bias corrections, taken out of the loop */
        .root = (real)(1 / sqrt(1 - pow(beta2, step))),
        .eps = (real)eps, .decay = (real)(lr * weight_decay), .scale = (real)scale,
    };
    double total = 0, lost = 0;
    for (dim i = 0; i < n; i += AT_ONCE) {
        const dim count = MIN(AT_ONCE, n - i);
        NAME(add_squares)(count, g + i, &total, &lost);
        NAME(adamw_stretch)(count, w + i, g + i, m + i, v + i, with);
    }
    return total;
}
