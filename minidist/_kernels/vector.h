/* Vectors: `LANES` numbers that one instruction works on. Included once per type by each_type.h.
 *
 * GCC and clang know vector types: `a * b + c` on them compiles to the vector instructions of the path's target, so
 * no assembly and no intrinsics are needed, and one text serves SSE2, AVX2, AVX-512 and NEON.
 */
#define LANES ((dim)(VECTOR_BYTES / sizeof(real)))
#define vec NAME(vec)
#define loose NAME(loose)
#define lanes_mask NAME(lanes_mask)
#define lane_index NAME(lane_index) /* an integer as wide as a real */

typedef real vec __attribute__((vector_size(VECTOR_BYTES)));
/* The same where it lies in memory: NumPy promises the alignment of one number, not that of a vector. */
typedef real loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
/* What comparing two vectors gives: an integer per lane, all bits 1 where true. */
#if REAL_BYTES == 4
typedef int32_t lane_index __attribute__((may_alias));
typedef int32_t lanes_mask __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t NAME(indices) __attribute__((vector_size(16)));
#else
typedef int64_t lane_index __attribute__((may_alias));
typedef int64_t lanes_mask __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t NAME(indices) __attribute__((vector_size(16)));
#endif

#define load NAME(load)
#define store NAME(store)
#define store_part NAME(store_part)
#define load_part NAME(load_part)
#define copy_part NAME(copy_part)
#define turn_square NAME(turn_square)

static inline vec load(const real *x) { return *(const loose *)x; }
static inline void store(real *x, vec v) { *(loose *)x = v; }

/* Load or store the first `count` < LANES numbers only. Copies of fixed size (8, 4, 2, 1) are single instructions. */
static inline void copy_part(real *to, const real *from, dim count)
{
    if (LANES > 8 && count & 8) { memcpy(to, from, 8 * sizeof(real)); to += 8; from += 8; }
    if (LANES > 4 && count & 4) { memcpy(to, from, 4 * sizeof(real)); to += 4; from += 4; }
    if (LANES > 2 && count & 2) { memcpy(to, from, 2 * sizeof(real)); to += 2; from += 2; }
    if (count & 1) { memcpy(to, from, sizeof(real)); }
}
#if VECTOR_BYTES == 64 /* AVX-512 can leave out lanes by a mask */
#if REAL_BYTES == 4
static inline vec load_part(const real *x, dim count) { return (vec)_mm512_maskz_loadu_ps((1u << count) - 1, x); }
static inline void store_part(real *x, vec v, dim count) { _mm512_mask_storeu_ps(x, (1u << count) - 1, (__m512)v); }
#else
static inline vec load_part(const real *x, dim count) { return (vec)_mm512_maskz_loadu_pd((1u << count) - 1, x); }
static inline void store_part(real *x, vec v, dim count) { _mm512_mask_storeu_pd(x, (1u << count) - 1, (__m512d)v); }
#endif
#else
static inline vec load_part(const real *x, dim count)
{
    vec v = {0};
    copy_part((real *)&v, x, count);
    return v;
}
static inline void store_part(real *x, vec v, dim count) { copy_part(x, (const real *)&v, count); }
#endif

/* Turn a square of 4 x 4 float32 (2 x 2 float64) on its diagonal: rows `step` apart become columns. Vectors of 16 bytes,
 * which every path has: shuffles within 16 bytes are cheap everywhere. */
#define SQUARE ((dim)(16 / sizeof(real)))
#define quad NAME(quad)
typedef real quad __attribute__((vector_size(16), aligned(sizeof(real)), may_alias));

static inline void turn_square(const real *from, dim from_row, real *to, dim to_row)
{
#if REAL_BYTES == 4
    quad r0 = *(quad *)from, r1 = *(quad *)(from + from_row);
    quad r2 = *(quad *)(from + 2 * from_row), r3 = *(quad *)(from + 3 * from_row);
    quad ab = SHUFFLE(r0, r1, 0, 4, 1, 5), AB = SHUFFLE(r0, r1, 2, 6, 3, 7);  /* a0 b0 a1 b1 | a2 b2 a3 b3 */
    quad cd = SHUFFLE(r2, r3, 0, 4, 1, 5), CD = SHUFFLE(r2, r3, 2, 6, 3, 7);
    *(quad *)to = SHUFFLE(ab, cd, 0, 1, 4, 5);                                /* a0 b0 c0 d0 */
    *(quad *)(to + to_row) = SHUFFLE(ab, cd, 2, 3, 6, 7);
    *(quad *)(to + 2 * to_row) = SHUFFLE(AB, CD, 0, 1, 4, 5);
    *(quad *)(to + 3 * to_row) = SHUFFLE(AB, CD, 2, 3, 6, 7);
#else
    quad r0 = *(quad *)from, r1 = *(quad *)(from + from_row);
    *(quad *)to = SHUFFLE(r0, r1, 0, 2);
    *(quad *)(to + to_row) = SHUFFLE(r0, r1, 1, 3);
#endif
}
