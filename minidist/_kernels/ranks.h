/* What ranks that share memory need: a sum over all of them in one pass, and numbers that tell how far each one is. */

/* Replace each of `count` vectors by the sum of all, added in the order given. Every number is loaded once from each
 * vector and stored once to each: no partial sum ever goes to memory.
 *
 * Where the numbers lie in another processor's cache, or in pages of 4 kB, at whose ends the processor stops to read
 * ahead, it is told early what comes next: a sum of two vectors of 4 MB takes a sixth less. */
#define BYTES_AHEAD 2048 /* what is read by the time the first of them has come; twice as many gain less */

static void NAME(sum_into_all)(dim count, dim n, void *const *start)
{
    real *const *x = (real *const *)start;
    dim i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        for (dim r = 0; r < count; r++)
            UNROLL for (dim b = 0; b < 4 * VECTOR_BYTES; b += 64) /* a cache line each */
                FETCH_TO_WRITE((const char *)(x[r] + i) + BYTES_AHEAD + b);
        vec sum[4];
        UNROLL for (dim k = 0; k < 4; k++) sum[k] = load(x[0] + i + k * LANES);
        for (dim r = 1; r < count; r++)
            UNROLL for (dim k = 0; k < 4; k++) sum[k] += load(x[r] + i + k * LANES);
        for (dim r = 0; r < count; r++)
            UNROLL for (dim k = 0; k < 4; k++) store(x[r] + i + k * LANES, sum[k]);
    }
    for (; i < n; i++) {
        real sum = x[0][i];
        for (dim r = 1; r < count; r++) sum += x[r][i];
        for (dim r = 0; r < count; r++) x[r][i] = sum;
    }
}
