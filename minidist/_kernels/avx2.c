/* The kernels for processors with AVX2 and FMA (nearly all since 2015): 16 registers of 32 bytes. */
#include "kernels.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#define VECTOR_BYTES 32
#define TILE_ROWS 6 /* 6 x 2 sums, 2 vectors of B and a number of A: 15 of 16 registers */
#define TILE_VECTORS 2
#include "each_type.h"

const struct kernels minidist_avx2[2] = {table_float32, table_float64};

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
