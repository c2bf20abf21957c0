/* Update rules in one pass: each weight, gradient and moment is loaded once and stored once. These loops do so little
 * with each number that memory sets their speed, so one pass is all there is to gain. */

static void NAME(sgd)(
    dim n, void *weights, const void *gradients, void *momentum_buffer,
    double lr_, double momentum_, double weight_decay_, double scale_)
{
    real *restrict w = weights, *restrict buffer = momentum_buffer;
    const real *restrict g = gradients;
    const real lr = (real)lr_, momentum = (real)momentum_, weight_decay = (real)weight_decay_, scale = (real)scale_;
    if (buffer) {
        for (dim i = 0; i < n; i++) {
            buffer[i] = momentum * buffer[i] + (scale * g[i] + weight_decay * w[i]);
            w[i] -= lr * buffer[i];
        }
    } else {
        for (dim i = 0; i < n; i++) w[i] -= lr * (scale * g[i] + weight_decay * w[i]);
    }
}

static void NAME(adamw)(
    dim n, void *weights, const void *gradients, void *m_start, void *v_start, double step, double lr,
    double beta1_, double beta2_, double eps_, double weight_decay, double scale_)
{
    real *restrict w = weights, *restrict m = m_start, *restrict v = v_start;
    const real *restrict g = gradients;
    const real beta1 = (real)beta1_, rest1 = (real)(1 - beta1_), beta2 = (real)beta2_, rest2 = (real)(1 - beta2_);
    const real rate = (real)(lr / (1 - pow(beta1_, step))); /* the bias corrections, taken out of the loop */
    const real root = (real)(1 / sqrt(1 - pow(beta2_, step)));
    const real eps = (real)eps_, decay = (real)(lr * weight_decay), scale = (real)scale_;
    for (dim i = 0; i < n; i++) {
        const real gradient = scale * g[i];
        m[i] = beta1 * m[i] + rest1 * gradient;
        v[i] = beta2 * v[i] + rest2 * gradient * gradient;
        w[i] -= decay * w[i] + rate * m[i] / ((real)sqrt(v[i]) * root + eps);
    }
}
