/* Vectors: `LANES` numbers that one instruction works on. Included once per type by each_type.h.
 *
 * GCC and clang know vector types: `a * b + c` on them compiles to the vector instructions of the path's target, so
 * no assembly and no intrinsics are needed, and one text serves SSE2, AVX2, AVX-512 and NEON.
 */
#define LANES ((dim)(VECTOR_BYTES / sizeof(real)))
#define vec NAME(vec)
#define loose NAME(loose)
#define lanes_mask NAME(lanes_mask)
#define loose_mask NAME(loose_mask)
#define lane_index NAME(lane_index) /* an integer as wide as a real */

typedef real vec __attribute__((vector_size(VECTOR_BYTES)));
/* The same where it lies in memory: NumPy promises the alignment of one number, not that of a vector. */
typedef real loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
/* What comparing two vectors gives: an integer per lane, all bits 1 where true. */
#if REAL_BYTES == 4
#define SUFFIX(operation) operation##_ps /* as x86 calls it */
typedef int32_t lane_index __attribute__((may_alias));
typedef int32_t lanes_mask __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t NAME(indices) __attribute__((vector_size(16)));
#else
#define SUFFIX(operation) operation##_pd
typedef int64_t lane_index __attribute__((may_alias));
typedef int64_t lanes_mask __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t NAME(indices) __attribute__((vector_size(16)));
#endif

typedef lanes_mask loose_mask __attribute__((aligned(sizeof(real)), may_alias));

#define load NAME(load)
#define store NAME(store)
#define store_part NAME(store_part)
#define load_part NAME(load_part)
#define load_part_or NAME(load_part_or)
#define some NAME(some)
#define some_or NAME(some_or)
#define store_some NAME(store_some)
#define every NAME(every)
#define greater NAME(greater)
#define lesser NAME(lesser)
#define choose NAME(choose)
#define equal_bits NAME(equal_bits)
#define copy_part NAME(copy_part)
#define turn_square NAME(turn_square)

static inline vec load(const real *x) { return *(const loose *)x; }
static inline void store(real *x, vec v) { *(loose *)x = v; }
static inline ALWAYS_INLINE vec every(real x) { return x - (vec){0}; } /* x in every lane */

/* Load or store the first `count` < LANES numbers only. Copies of fixed size (8, 4, 2, 1) are single instructions. */
static inline void copy_part(real *to, const real *from, dim count)
{
    if (LANES > 8 && count & 8) { memcpy(to, from, 8 * sizeof(real)); to += 8; from += 8; }
    if (LANES > 4 && count & 4) { memcpy(to, from, 4 * sizeof(real)); to += 4; from += 4; }
    if (LANES > 2 && count & 2) { memcpy(to, from, 2 * sizeof(real)); to += 2; from += 2; }
    if (count & 1) { memcpy(to, from, sizeof(real)); }
}
static inline ALWAYS_INLINE vec choose(lanes_mask which, vec x, vec y) /* by masks of all 1 or all 0 */
{
    return (vec)((which & (lanes_mask)x) | (~which & (lanes_mask)y));
}

/* The first `count` <= LANES numbers, and `fill` in the lanes behind them. */
#if VECTOR_BYTES == 64 /* AVX-512 can leave out lanes by a mask */
static inline vec load_part_or(const real *x, dim count, vec fill)
{
    return (vec)X86(64, SUFFIX(mask_loadu))(fill, (1u << count) - 1, x);
}
static inline void store_part(real *x, vec v, dim count) { X86(64, SUFFIX(mask_storeu))(x, (1u << count) - 1, v); }
#elif VECTOR_BYTES == 32 /* AVX2 likewise, by the sign bits of a vector */
static inline lanes_mask NAME(first_lanes)(dim count)
{
    static const lane_index signs[16] = {-1, -1, -1, -1, -1, -1, -1, -1}; /* then zeros */
    return *(const loose_mask *)(signs + 8 - count);
}
static inline vec load_part_or(const real *x, dim count, vec fill)
{
    const lanes_mask which = NAME(first_lanes)(count);
    return choose(which, X86(32, SUFFIX(maskload))(x, (__m256i)which), fill);
}
static inline void store_part(real *x, vec v, dim count)
{
    X86(32, SUFFIX(maskstore))(x, (__m256i)NAME(first_lanes)(count), v);
}
#else
static inline vec load_part_or(const real *x, dim count, vec fill)
{
    copy_part((real *)&fill, x, count);
    return fill;
}
static inline void store_part(real *x, vec v, dim count) { copy_part(x, (const real *)&v, count); }
#endif
static inline vec load_part(const real *x, dim count) { return load_part_or(x, count, (vec){0}); }

/* A whole vector, or the last `part` numbers of a row. */
static inline ALWAYS_INLINE vec some(const real *x, dim part) { return part == LANES ? load(x) : load_part(x, part); }
static inline ALWAYS_INLINE vec some_or(const real *x, dim part, real fill)
{
    return part == LANES ? load(x) : load_part_or(x, part, every(fill));
}
static inline ALWAYS_INLINE void store_some(real *x, vec v, dim part)
{
    if (part == LANES) store(x, v);
    else store_part(x, v, part);
}

/* In each lane x > y ? x : y, so y where one of them is nan. x86 has an instruction for that, but no operator of C. */
#if defined(__x86_64__)
static inline ALWAYS_INLINE vec greater(vec x, vec y) { return (vec)X86(VECTOR_BYTES, SUFFIX(max))(x, y); }
static inline ALWAYS_INLINE vec lesser(vec x, vec y) { return (vec)X86(VECTOR_BYTES, SUFFIX(min))(x, y); }
#else
static inline vec greater(vec x, vec y) { return choose(x > y, x, y); }
static inline vec lesser(vec x, vec y) { return choose(x < y, x, y); }
#endif

/* Where two vectors are equal: one bit for each lane, the first lane's bit first. */
static inline ALWAYS_INLINE uint64_t equal_bits(vec x, vec y)
{
#if VECTOR_BYTES == 64 && REAL_BYTES == 4
    return _mm512_cmpeq_ps_mask(x, y);
#elif VECTOR_BYTES == 64
    return _mm512_cmpeq_pd_mask(x, y);
#elif defined(__x86_64__)
    return (uint64_t)X86(VECTOR_BYTES, SUFFIX(movemask))((vec)(x == y));
#else
    uint64_t bits = 0;
    for (dim l = 0; l < LANES; l++) bits |= (uint64_t)(x[l] == y[l]) << l;
    return bits;
#endif
}

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
