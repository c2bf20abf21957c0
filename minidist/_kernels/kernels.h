/* The table of compiled kernels, and the paths that fill it.
 *
 * C has no templates, so each kernel is written once for a type called `real` and included twice, by each_type.h; and
 * the whole is compiled once for each instruction set, by avx512.c, avx2.c and baseline.c. What comes out of that is
 * one table of functions per path and type. Which of them a processor can run is asked when the module is loaded.
 *
 * Every kernel takes plain memory. Arrays are C-contiguous except where strides are given; checks are the caller's
 * (compiled.pyx). Sizes, indices and strides count numbers, not bytes.
 */
#ifndef MINIDIST_KERNELS_H
#define MINIDIST_KERNELS_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef ptrdiff_t dim;

/* An array (batch, heads, time, dim) whose rows of `dim` are contiguous, and how far apart the others are. */
struct heads {
    void *data;
    dim batch, head, row;
};

/* C = A B, or C += A B; then, where they are given, + bias along each row, and an activation. */
struct product {
    dim m, n, k; /* C is m x n, A is m x k, B is k x n */
    const void *a;
    dim a_row, a_col; /* strides: from row to row, from column to column */
    const void *b;
    dim b_row, b_col;
    void *c;
    dim c_row; /* the numbers of a row of C are neighbours */
    int accumulate;
    const void *bias; /* n numbers, or NULL */
    int activation;
};
enum activation { NONE, RELU, GELU };

/* Fetch a cache line to write to it: it comes alone, not shared with the core that wrote it last and has to be asked
 * again. Processors that do not know the instruction pass over it. */
#if defined(__x86_64__)
#define FETCH_TO_WRITE(address) __asm__ volatile("prefetchw %0" : : "m"(*(const char *)(address)))
#else
#define FETCH_TO_WRITE(address) __builtin_prefetch(address, 1)
#endif

struct kernels {
    int (*matmul)(const struct product *x, int threads); /* 0, or -1 when there is no memory to pack into */

    /* ladder.h: seven ways to multiply, slowest first */
    void (*ladder[7])(dim m, dim n, dim k, const float *a, const float *b, float *c); /* float32 only */

    /* over the middle dim of x (outer, count, inner) */
    void (*sum)(dim outer, dim count, dim inner, const void *x, void *out, int add);
    void (*max)(dim outer, dim count, dim inner, const void *x, void *out);
    void (*argmax)(dim outer, dim count, dim inner, const void *x, int64_t *out);
    double (*sum_of_squares)(dim n, const void *x);

    void (*log_sum_exp)(dim rows, dim n, const void *x, void *out);
    void (*softmax)(dim rows, dim n, const void *x, void *y);
    void (*softmax_backward)(dim rows, dim n, const void *grad, const void *y, void *dx);
    void (*cross_entropy)(dim rows, dim classes, const void *logits, const int64_t *labels, void *losses,
                          double *sums, void *exponentials);
    void (*cross_entropy_backward)(dim rows, dim classes, const void *exponentials, const int64_t *labels,
                                   const double *sums, const void *grad_losses, void *dlogits);
    void (*layer_norm)(dim rows, dim d, const void *x, const void *gain, const void *bias, double eps, void *y,
                       void *mean, void *rstd);
    int (*layer_norm_backward)(dim rows, dim d, const void *grad, const void *x, const void *gain, const void *mean,
                               const void *rstd, void *dx, void *dgain, void *dbias);

    int (*attention)(dim batch, dim heads, dim time, dim d, double scale, struct heads q, struct heads k,
                     struct heads v, struct heads out, void *log_sum_exp);
    int (*attention_backward)(dim batch, dim heads, dim time, dim d, double scale, struct heads grad, struct heads q,
                              struct heads k, struct heads v, struct heads out, const void *log_sum_exp,
                              struct heads dq, struct heads dk, struct heads dv);

    void (*gelu)(dim n, const void *x, void *y);
    void (*gelu_backward)(dim n, const void *grad, const void *x, void *dx);
    void (*relu)(dim n, const void *x, void *y);
    void (*relu_backward)(dim n, const void *grad, const void *y, void *dx);

    /* both return the sum of squares of the gradients, without `scale` */
    double (*sgd)(dim n, void *weights, const void *gradients, void *momentum_buffer, double lr, double momentum,
                  double weight_decay, double scale);
    double (*adamw)(dim n, void *weights, const void *gradients, void *m, void *v, double step, double lr,
                    double beta1, double beta2, double eps, double weight_decay, double scale);

    void (*sum_into_all)(dim count, dim n, void *const *vectors);
};

/* A path has two tables: [0] for float32, [1] for float64. */
struct path {
    const char *name;
    const struct kernels *kernels;
};
extern const struct path minidist_paths[]; /* best first; the last has no name */
int minidist_path_works(const struct path *path);

extern const char *const minidist_ladder_names[];
extern const int minidist_has_threads; /* built with OpenMP */
void *minidist_borrow(size_t size); /* workspace.c */
void minidist_give_back(void *lent);
extern const struct kernels minidist_avx512[2], minidist_avx2[2], minidist_baseline[2];

/* X86(32, add_ps) is _mm256_add_ps: what the processor can do and C has no operator for. */
#define X86(bytes, operation) X86_OF_BYTES(bytes, operation)
#define X86_OF_BYTES(bytes, operation) X86_##bytes(operation)
#define X86_16(operation) _mm_##operation
#define X86_32(operation) _mm256_##operation
#define X86_64(operation) _mm512_##operation

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define MAX(x, y) ((x) > (y) ? (x) : (y))
#define ALWAYS_INLINE __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
/* SHARED(for) before a loop: the threads of a team share its turns, and a thread without a team runs all. */
#if defined(_OPENMP)
#include <omp.h>
#define PRAGMA(text) _Pragma(#text)
#define SHARED(...) PRAGMA(omp __VA_ARGS__)
#define this_thread() omp_get_thread_num()
#else
#define SHARED(...)
#define this_thread() 0
#endif
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE __builtin_shufflevector
#else /* older GCC wants the indices in a vector */
#define SHUFFLE(x, y, ...) __builtin_shuffle(x, y, (NAME(indices)){__VA_ARGS__})
#endif
#endif
