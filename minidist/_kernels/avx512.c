/* The kernels for processors with AVX-512 (Intel servers since 2017, AMD since Zen 4): 32 registers of 64 bytes. */
#include "kernels.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma,prefer-vector-width=512")
#endif

#define VECTOR_BYTES 64
#ifndef TILE_ROWS
#define TILE_ROWS 14 /* 14 x 2 sums, 2 vectors of B and a number of A: 31 of 32 registers */
#endif
#define TILE_VECTORS 2
#include "each_type.h"

const struct kernels minidist_avx512[2] = {table_float32, table_float64};

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
