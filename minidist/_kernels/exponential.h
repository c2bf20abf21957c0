/* exp(x), written so that the compiler turns a loop of calls into vector instructions: no branch, no table, no libm.
 *
 * x = n ln 2 + r with a whole number n, so exp(x) = 2^n exp(r) with |r| <= ln 2 / 2 = 0.35. There the series 1 + r +
 * r^2/2! + ... is short (up to r^7 for float32, r^13 for float64), and 2^n is n written into the exponent bits.
 * The error is below 1.5 units in the last place. exp(-inf) = 0, exp(inf) = inf, nan stays nan, and where the result
 * is subnormal it is rounded once, to within one unit.
 */
#if REAL_BYTES == 4
#define bits int32_t
#define MANTISSA_BITS 23
#define EXPONENT_BIAS 127
#define ROUNDER 12582912.0f /* 1.5 * 2^23: adding it leaves no bits for a fraction, so the sum is rounded */
#define LOG2_E 1.44269504f
#define LN2_HIGH 0.693359375f /* few bits, so n * LN2_HIGH is exact; the rest of ln 2 follows */
#define LN2_LOW -2.12194440e-4f
#define EXP_UNDER -104.0f /* below: 0 */
#define EXP_OVER 89.0f    /* above: inf */
#else
#define bits int64_t
#define MANTISSA_BITS 52
#define EXPONENT_BIAS 1023
#define ROUNDER 6755399441055744.0
#define LOG2_E 1.44269504088896340736
#define LN2_HIGH 6.93145751953125e-1
#define LN2_LOW 1.42860682030941723212e-6
#define EXP_UNDER -746.0
#define EXP_OVER 710.0
#endif

static inline real NAME(power_of_two)(bits n)
{
    bits pattern = (n + EXPONENT_BIAS) << MANTISSA_BITS;
    real power;
    memcpy(&power, &pattern, sizeof power);
    return power;
}

static inline ALWAYS_INLINE real NAME(exponential)(real x)
{
    x = x < EXP_UNDER ? EXP_UNDER : x; /* a comparison with nan is false, so nan goes on */
    x = x > EXP_OVER ? EXP_OVER : x;
    const real shifted = x * LOG2_E + ROUNDER, n = shifted - ROUNDER;
    const real r = (x - n * LN2_HIGH) - n * LN2_LOW;

    real e = 1;
    if (REAL_BYTES == 8) { /* (((r/13 + 1) r/12 + 1) ... with the divisions done beforehand */
        e = (real)(1.0 / 6227020800);
        e = e * r + (real)(1.0 / 479001600);
        e = e * r + (real)(1.0 / 39916800);
        e = e * r + (real)(1.0 / 3628800);
        e = e * r + (real)(1.0 / 362880);
        e = e * r + (real)(1.0 / 40320);
        e = e * r + (real)(1.0 / 5040);
    } else {
        e = (real)(1.0 / 5040);
    }
    e = e * r + (real)(1.0 / 720);
    e = e * r + (real)(1.0 / 120);
    e = e * r + (real)(1.0 / 24);
    e = e * r + (real)(1.0 / 6);
    e = e * r + (real)(1.0 / 2);
    e = e * r + 1;
    e = e * r + 1;

    bits pattern, rounder_pattern;
    const real rounder = ROUNDER;
    memcpy(&pattern, &shifted, sizeof pattern);
    memcpy(&rounder_pattern, &rounder, sizeof rounder_pattern);
    const bits whole = pattern - rounder_pattern; /* n as an integer: the last bits of `shifted` */
    const bits half = whole >> 1;                 /* 2^n in two steps: 2^128 is no float32, nor is 2^-140 */
    return e * NAME(power_of_two)(half) * NAME(power_of_two)(whole - half);
}
#define exponential NAME(exponential)

#undef bits
#undef MANTISSA_BITS
#undef EXPONENT_BIAS
#undef ROUNDER
#undef LOG2_E
#undef LN2_HIGH
#undef LN2_LOW
#undef EXP_UNDER
#undef EXP_OVER
