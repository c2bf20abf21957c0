/* The kernels for any processor: 16 bytes to a vector, which is SSE2 on x86-64 and NEON on arm64. */
#include "kernels.h"

#define VECTOR_BYTES 16
#if defined(__aarch64__)
#define TILE_ROWS 12 /* 32 registers, as with AVX-512 */
#else
#define TILE_ROWS 6 /* 16 registers, as with AVX2 */
#endif
#define TILE_VECTORS 2
#include "each_type.h"

const struct kernels minidist_baseline[2] = {table_float32, table_float64};
