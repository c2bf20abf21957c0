/* The road to matmul.h, step by step: seven ways to compute C = A B, each a few lines longer than the one before.
 *
 * All take C-ordered matrices, C (m, n), A (m, k) and B (k, n), and nothing else, so that only the idea of each step is
 * to be seen. `python -m minidist.bench kernels --ladder` measures them; matmul.h is the last one, grown up.
 */
#define LADDER_DEPTH ((dim)64)
#define LADDER_COLUMNS ((dim)256)
#define LADDER_ROWS 4

/* 1. As in the textbook. Each step of p jumps to another row of B: to another cache line, and often to another page. */
static void NAME(naive)(dim m, dim n, dim k, const real *a, const real *b, real *c)
{
    for (dim i = 0; i < m; i++)
        for (dim j = 0; j < n; j++) {
            real sum = 0;
            for (dim p = 0; p < k; p++) sum += a[i * k + p] * b[p * n + j];
            c[i * n + j] = sum;
        }
}

/* 2. The same loops in another order: now B and C are read as they lie, and the compiler can make vectors of j. */
static void NAME(reordered)(dim m, dim n, dim k, const real *a, const real *b, real *restrict c)
{
    memset(c, 0, m * n * sizeof(real));
    for (dim i = 0; i < m; i++)
        for (dim p = 0; p < k; p++)
            for (dim j = 0; j < n; j++) c[i * n + j] += a[i * k + p] * b[p * n + j];
}

/* 3. One block of B after the other, small enough to stay in the cache while all rows of A pass by. */
static void NAME(blocked)(dim m, dim n, dim k, const real *a, const real *b, real *restrict c)
{
    memset(c, 0, m * n * sizeof(real));
    for (dim p0 = 0; p0 < k; p0 += LADDER_DEPTH)
        for (dim j0 = 0; j0 < n; j0 += LADDER_COLUMNS)
            for (dim i = 0; i < m; i++)
                for (dim p = p0; p < MIN(k, p0 + LADDER_DEPTH); p++)
                    for (dim j = j0; j < MIN(n, j0 + LADDER_COLUMNS); j++) c[i * n + j] += a[i * k + p] * b[p * n + j];
}

/* 4. The block is copied first: its rows lie side by side, in few pages, and none pushes another out of the cache. */
static void NAME(packed)(dim m, dim n, dim k, const real *a, const real *b, real *restrict c)
{
    real block[LADDER_DEPTH * LADDER_COLUMNS];
    memset(c, 0, m * n * sizeof(real));
    for (dim p0 = 0; p0 < k; p0 += LADDER_DEPTH)
        for (dim j0 = 0; j0 < n; j0 += LADDER_COLUMNS) {
            const dim depth = MIN(LADDER_DEPTH, k - p0), columns = MIN(LADDER_COLUMNS, n - j0);
            for (dim p = 0; p < depth; p++)
                memcpy(block + p * columns, b + (p0 + p) * n + j0, columns * sizeof(real));
            for (dim i = 0; i < m; i++)
                for (dim p = 0; p < depth; p++)
                    for (dim j = 0; j < columns; j++) c[i * n + j0 + j] += a[i * k + p0 + p] * block[p * columns + j];
        }
}

/* 5. Four rows of C at a time, and one vector's width of columns: their sums stay in registers while p runs, so each
 * number of B that is loaded is used four times, and C is touched once in LADDER_DEPTH steps instead of in each. */
static void NAME(register_tiled)(dim m, dim n, dim k, const real *a, const real *b, real *restrict c)
{
    real panel[LADDER_DEPTH * LANES];
    memset(c, 0, m * n * sizeof(real));
    for (dim p0 = 0; p0 < k; p0 += LADDER_DEPTH)
        for (dim j0 = 0; j0 < n; j0 += LANES) {
            const dim depth = MIN(LADDER_DEPTH, k - p0), columns = MIN(LANES, n - j0);
            memset(panel, 0, sizeof panel);
            for (dim p = 0; p < depth; p++)
                memcpy(panel + p * LANES, b + (p0 + p) * n + j0, columns * sizeof(real));
            for (dim i0 = 0; i0 < m; i0 += LADDER_ROWS) {
                const dim rows = MIN(LADDER_ROWS, m - i0);
                const real *row[LADDER_ROWS]; /* a missing row is computed like the last one, and not stored */
                for (dim i = 0; i < LADDER_ROWS; i++) row[i] = a + (i0 + MIN(i, rows - 1)) * k + p0;
                vec sum[LADDER_ROWS] = {{0}}; /* said so to the compiler: arrays it would keep in memory */
                for (dim p = 0; p < depth; p++)
                    UNROLL for (int i = 0; i < LADDER_ROWS; i++) sum[i] += row[i][p] * load(panel + p * LANES);
                for (dim i = 0; i < rows; i++)
                    for (dim j = 0; j < columns; j++) c[(i0 + i) * n + j0 + j] += sum[i][j];
            }
        }
}

/* 6. Two vectors wide, and as many rows as there are registers for; C is read and written by vectors: tile.h. */
static void NAME(vectorised)(dim m, dim n, dim k, const real *a, const real *b, real *c)
{
    real panel[LADDER_DEPTH * TILE_COLUMNS];
    if (k == 0) memset(c, 0, m * n * sizeof(real));
    for (dim p0 = 0; p0 < k; p0 += LADDER_DEPTH)
        for (dim j0 = 0; j0 < n; j0 += TILE_COLUMNS) {
            const dim depth = MIN(LADDER_DEPTH, k - p0), columns = MIN(TILE_COLUMNS, n - j0);
            NAME(pack_panel)(depth, columns, b + p0 * n + j0, n, 1, panel);
            for (dim i0 = 0; i0 < m; i0 += TILE_ROWS)
                NAME(any_tile)(MIN(TILE_ROWS, m - i0), columns, depth, a + i0 * k + p0, k, 1, panel, TILE_COLUMNS,
                               c + i0 * n + j0, n, p0 > 0);
        }
}

/* 7. Each thread computes some rows of C. Nobody waits for anybody, because nobody writes where another reads. */
static void NAME(threaded)(dim m, dim n, dim k, const real *a, const real *b, real *c)
{
    const dim parts = (m + 8 * TILE_ROWS - 1) / (8 * TILE_ROWS), each = parts ? (m + parts - 1) / parts : 0;
#ifdef _OPENMP
#pragma omp parallel for num_threads(2)
#endif
    for (dim t = 0; t < parts; t++) {
        const dim start = MIN(m, t * each), rows = MIN(m, start + each) - start;
        NAME(vectorised)(rows, n, k, a + start * k, b, c + start * n);
    }
}
