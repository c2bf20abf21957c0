/* Activations: one pass over memory, where NumPy makes one for every operation of the formula. */
#define GELU_SLOPE ((real)0.79788456080286535588) /* sqrt(2 / pi) */
#define GELU_CUBIC ((real)0.044715)

/* Where gelu(x) is x and where it is 0, to the last bit: what lies beyond is moved here. exp(-2 u) must just be inf at
 * GELU_ZERO, 2^128 or 2^1024 by rounding, for 1 / inf = 0. */
#if REAL_BYTES == 4
#define GELU_ZERO -10.06f
#define GELU_ONE 9.0f
#else
#define GELU_ZERO -21.1598
#define GELU_ONE 20.0
#endif

/* 1 / x of numbers from 1 up. Dividing 16 numbers takes as long as 30 other instructions, so AVX-512 takes an
 * approximation, wrong by less than 2^-14, and improves it by a step of Newton's method: y + y (1 - x y). Of 1 / inf = 0
 * that would make nan: hence -1, which no other x comes near. (AVX2 divides faster than it approximates.) */
static inline ALWAYS_INLINE vec NAME(reciprocal)(vec x)
{
#if VECTOR_BYTES == 64 && REAL_BYTES == 4
    const vec y = _mm512_rcp14_ps(x);
    return y + y * greater(1 - x * y, every(-1));
#else
    return 1 / x;
#endif
}

/* (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), with u the polynomial of gelu: no cancellation, and only one exponential. */
static inline ALWAYS_INLINE vec NAME(gelu_gate)(vec x)
{
    const vec minus_2u = x * (x * x * (-2 * GELU_SLOPE * GELU_CUBIC) - 2 * GELU_SLOPE);
    return NAME(reciprocal)(1 + NAME(lifted_exponential)(minus_2u, 0));
}

static void NAME(gelu)(dim n, const void *start, void *result)
{
    const real *x = start;
    real *y = result;
    for (dim i = 0; i < n; i += LANES) {
        const dim part = MIN(LANES, n - i);
        const vec above = greater(every(GELU_ZERO), some(x + i, part)); /* nan goes on */
        store_some(y + i, above * NAME(gelu_gate)(lesser(every(GELU_ONE), above)), part);
    }
}

static void NAME(gelu_backward)(dim n, const void *grad, const void *start, void *result)
{
    const real *g = grad, *x = start;
    real *dx = result;
    for (dim i = 0; i < n; i += LANES) {
        const dim part = MIN(LANES, n - i);
        const vec curved = lesser(every(GELU_ONE), greater(every(GELU_ZERO), some(x + i, part)));
        const vec gate = NAME(gelu_gate)(curved);
        const vec slope = curved * (curved * curved * (6 * GELU_SLOPE * GELU_CUBIC) + 2 * GELU_SLOPE);
        store_some(dx + i, some(g + i, part) * (gate + slope * (gate - gate * gate)), part);
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

#undef GELU_ZERO
#undef GELU_ONE
