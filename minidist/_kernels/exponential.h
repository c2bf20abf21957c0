/* exp(x) of a vector of numbers: no branch, no table, no libm.
 *
 * x = n ln 2 + r with a whole number n, so exp(x) = 2^n exp(r) with |r| <= ln 2 / 2 = 0.35. There exp(r) is a short
 * polynomial, 1 + r + r^2 q(r), and 2^n is n written into the exponent bits.
 *
 * Rounding costs one addition: to a number so large that no bits are left for a fraction (ROUNDER). Its last bits are
 * then n, in two's complement; and if the exponent's bias was in ROUNDER already, they are what the bits of 2^n begin
 * with, so that one shift makes 2^n.
 *
 * A result below 2^-126 (float32) is subnormal, and 2^n alone is no ordinary number any more. So 2^n is made LIFT times
 * too large, and the product is divided by LIFT, which is exact or, for subnormal results, rounds once. What is below
 * EXP_UNDER counts as that, where the bits of 2^n are all 0, and so is the result: computed, it would be subnormal on the
 * way, and each such number costs the processor some hundred cycles.
 *
 * The error is below 1.5 units in the last place up to EXP_OVER (nothing here needs more: all but the exponents of GELU are
 * differences from a largest number). exp(-inf) = 0, and nan stays nan.
 */
#if REAL_BYTES == 4
#define MANTISSA_BITS 23
#define ROUNDER (12582912.0f + 127) /* 1.5 * 2^23, and the bias */
#define LIFT_BITS 24
#define LIFT 16777216.0f
#define LOG2_E 1.44269504f
#define LN2_HIGH 0.693359375f /* few bits, so n * LN2_HIGH is exact; the rest of ln 2 follows */
#define LN2_LOW -2.12194440e-4f
#define EXP_UNDER -104.66f /* -151 ln 2: here 2^(n + lift) is 0 */
#define EXP_OVER 70
#else
#define MANTISSA_BITS 52
#define ROUNDER (6755399441055744.0 + 1023)
#define LIFT_BITS 54
#define LIFT 18014398509481984.0
#define LOG2_E 1.44269504088896340736
#define LN2_HIGH 6.93145751953125e-1
#define LN2_LOW 1.42860682030941723212e-6
#define EXP_UNDER -746.52 /* -1077 ln 2 */
#define EXP_OVER 670
#endif

/* exp(x) 2^lift, where neither 2^(n + lift) nor the result may be subnormal. From 2^(bias + 1) on it is inf.
 * Of `count` vectors, 1 or 2: each step waits four cycles for the one before, and two in turn keep the processor busier.
 */
static inline ALWAYS_INLINE void NAME(lifted_exponentials)(const int count, vec *x, const int lift)
{
#define EACH UNROLL for (int v = 0; v < count; v++)
#define TERM(factor) EACH q[v] = q[v] * r[v] + (real)(factor)
    vec shifted[2], r[2], q[2];
    EACH shifted[v] = x[v] * LOG2_E + (ROUNDER + lift);
    EACH q[v] = shifted[v] - (ROUNDER + lift); /* n */
    EACH r[v] = x[v] - q[v] * LN2_HIGH;
    EACH r[v] = r[v] - q[v] * LN2_LOW;
    if (REAL_BYTES == 8) { /* the series: r^2/2! + r^3/3! + ... + r^13/13! */
        EACH q[v] = r[v] * (real)(1.0 / 6227020800) + (real)(1.0 / 479001600);
        TERM(1.0 / 39916800);
        TERM(1.0 / 3628800);
        TERM(1.0 / 362880);
        TERM(1.0 / 40320);
        TERM(1.0 / 5040);
        TERM(1.0 / 720);
        TERM(1.0 / 120);
        TERM(1.0 / 24);
        TERM(1.0 / 6);
        TERM(1.0 / 2);
    } else { /* one power less than the series needs: these numbers spread its error, 3e-9, over all |r| <= 0.35 */
        EACH q[v] = r[v] * (real)0.001381454884 + (real)0.008368745271;
        TERM(0.04166839061);
        TERM(0.166665204);
        TERM(0.4999999343);
    }
    TERM(1);
    TERM(1);
    EACH x[v] = q[v] * (vec)((lanes_mask)shifted[v] << MANTISSA_BITS);
#undef EACH
#undef TERM
}

static inline ALWAYS_INLINE vec NAME(lifted_exponential)(vec x, const int lift)
{
    NAME(lifted_exponentials)(1, &x, lift);
    return x;
}

static inline ALWAYS_INLINE vec NAME(exponential)(vec x)
{
    return NAME(lifted_exponential)(greater(every(EXP_UNDER), x), LIFT_BITS) * (1 / LIFT);
}

static inline ALWAYS_INLINE void NAME(two_exponentials)(vec *x)
{
    for (int v = 0; v < 2; v++) x[v] = greater(every(EXP_UNDER), x[v]);
    NAME(lifted_exponentials)(2, x, LIFT_BITS);
    for (int v = 0; v < 2; v++) x[v] *= 1 / LIFT;
}
#define exponential NAME(exponential)

#undef MANTISSA_BITS
#undef ROUNDER
#undef LIFT_BITS
#undef LIFT
#undef LOG2_E
#undef LN2_HIGH
#undef LN2_LOW
#undef EXP_UNDER
#undef EXP_OVER
