/* Activations: one pass over memory, where NumPy makes one for every operation of the formula. */
#define GELU_SLOPE ((real)0.79788456080286535588) /* sqrt(2 / pi) */
#define GELU_CUBIC ((real)0.044715)
#define GELU_SATURATES ((real)40) /* from here on gelu(x) is x, and below -40 it is 0, to the last bit of float64 */

static inline ALWAYS_INLINE real NAME(curved_part)(real x)
{
    x = x > GELU_SATURATES ? GELU_SATURATES : x;
    return x < -GELU_SATURATES ? -GELU_SATURATES : x;
}

/* (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), with u the polynomial of gelu: no cancellation, and only one exponential. */
static inline ALWAYS_INLINE real NAME(gelu_gate)(real x)
{
    return 1 / (1 + exponential(-2 * GELU_SLOPE * (x + GELU_CUBIC * x * x * x)));
}

static void NAME(gelu)(dim n, const void *start, void *result)
{
    const real *restrict x = start;
    real *restrict y = result;
    for (dim i = 0; i < n; i++) {
        const real curved = NAME(curved_part)(x[i]);
        y[i] = (x[i] > 0 ? x[i] : curved) * NAME(gelu_gate)(curved);
    }
}

static void NAME(gelu_backward)(dim n, const void *grad, const void *start, void *result)
{
    const real *restrict g = grad, *restrict x = start;
    real *restrict dx = result;
    for (dim i = 0; i < n; i++) {
        const real curved = NAME(curved_part)(x[i]), gate = NAME(gelu_gate)(curved);
        const real slope = 2 * GELU_SLOPE * (1 + 3 * GELU_CUBIC * curved * curved);
        dx[i] = g[i] * (gate + curved * slope * gate * (1 - gate));
    }
}

static void NAME(relu)(dim n, const void *start, void *result)
{
    const real *restrict x = start;
    real *restrict y = result;
    for (dim i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i]; /* nan < 0 is false, so nan stays */
}

static void NAME(relu_backward)(dim n, const void *grad, const void *start, void *result)
{
    const real *restrict g = grad, *restrict y = start;
    real *restrict dx = result;
    for (dim i = 0; i < n; i++) dx[i] = y[i] > 0 ? g[i] : 0;
}
