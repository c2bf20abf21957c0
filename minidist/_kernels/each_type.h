/* All kernels twice: `real` is float, then double. NAME(sum) is sum_float32 the first time, sum_float64 the second. */
#define real float
#define REAL_BYTES 4
#define NAME(x) x##_float32
#include "kernels_of_type.h"
#undef real
#undef REAL_BYTES
#undef NAME
#undef SUFFIX

#define real double
#define REAL_BYTES 8
#define NAME(x) x##_float64
#include "kernels_of_type.h"
