/* Which instruction sets this build knows, and which of them this processor has. */
#include "kernels.h"

#ifdef _OPENMP
const int minidist_has_threads = 1;
#else
const int minidist_has_threads = 0;
#endif

const char *const minidist_ladder_names[] = {
    "naive", "reordered", "blocked", "packed", "register-tiled", "vectorised", "threaded", NULL};

const struct path minidist_paths[] = {
#if defined(__x86_64__)
    {"avx512", minidist_avx512},
    {"avx2", minidist_avx2},
#endif
#if defined(__aarch64__)
    {"neon", minidist_baseline}, /* every arm64 processor has NEON */
#else
    {"baseline", minidist_baseline},
#endif
    {NULL, NULL},
};

int minidist_path_works(const struct path *path)
{
#if defined(__x86_64__)
    if (path->kernels == minidist_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
    if (path->kernels == minidist_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    (void)path;
    return 1;
}
