# kernels.h, told to Cython.

from libc.stdint cimport int64_t

ctypedef Py_ssize_t dim

cdef extern from "kernels.h":
    struct heads:
        void *data
        dim batch, head, row

    struct product:
        dim m, n, k
        const void *a
        dim a_row, a_col
        const void *b
        dim b_row, b_col
        void *c
        dim c_row
        int accumulate
        const void *bias
        int activation

    const char *minidist_ladder_names[1]
    const int minidist_has_threads

    struct kernels:
        int (*matmul)(const product *x, int threads) noexcept nogil
        void (*ladder[7])(dim m, dim n, dim k, const float *a, const float *b, float *c) noexcept nogil

        void (*sum)(dim outer, dim count, dim inner, const void *x, void *out, int add) noexcept nogil
        void (*max)(dim outer, dim count, dim inner, const void *x, void *out) noexcept nogil
        void (*argmax)(dim outer, dim count, dim inner, const void *x, int64_t *out) noexcept nogil
        double (*sum_of_squares)(dim n, const void *x) noexcept nogil

        void (*log_sum_exp)(dim rows, dim n, const void *x, void *out) noexcept nogil
        void (*softmax)(dim rows, dim n, const void *x, void *y) noexcept nogil
        void (*softmax_backward)(dim rows, dim n, const void *grad, const void *y, void *dx) noexcept nogil
        void (*cross_entropy)(
            dim rows, dim classes, const void *logits, const int64_t *labels, void *losses,
            double *sums, void *exponentials) noexcept nogil
        void (*cross_entropy_backward)(
            dim rows, dim classes, const void *exponentials, const int64_t *labels, const double *sums,
            const void *grad_losses, void *dlogits) noexcept nogil
        void (*layer_norm)(
            dim rows, dim d, const void *x, const void *gain, const void *bias, double eps, void *y, void *mean,
            void *rstd) noexcept nogil
        int (*layer_norm_backward)(
            dim rows, dim d, const void *grad, const void *x, const void *gain, const void *mean,
            const void *rstd, void *dx, void *dgain, void *dbias) noexcept nogil

        int (*attention)(
            dim batch, dim heads, dim time, dim d, double scale, heads q, heads k, heads v, heads out,
            void *log_sum_exp) noexcept nogil
        int (*attention_backward)(
            dim batch, dim heads, dim time, dim d, double scale, heads grad, heads q, heads k, heads v, heads out,
            const void *log_sum_exp, heads dq, heads dk, heads dv) noexcept nogil

        void (*gelu)(dim n, const void *x, void *y) noexcept nogil
        void (*gelu_backward)(dim n, const void *grad, const void *x, void *dx) noexcept nogil
        void (*relu)(dim n, const void *x, void *y) noexcept nogil
        void (*relu_backward)(dim n, const void *grad, const void *y, void *dx) noexcept nogil

        double (*sgd)(
            dim n, void *weights, const void *gradients, void *momentum_buffer, double lr, double momentum,
            double weight_decay, double scale) noexcept nogil
        double (*adamw)(
            dim n, void *weights, const void *gradients, void *m, void *v, double step, double lr,
            double beta1, double beta2, double eps, double weight_decay, double scale) noexcept nogil

        void (*sum_into_all)(dim count, dim n, void *const *vectors) noexcept nogil

    struct path:
        const char *name
        const kernels *kernels

    const path minidist_paths[1]
    int minidist_path_works(const path *) noexcept nogil
