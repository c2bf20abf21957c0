/* The matrix product C = A B, or C += A B: the one loop nest that decides how fast training is.
 *
 * Three loops would do:  for i, for j, for p:  C[i][j] += A[i][p] * B[p][j]
 * but then every multiplication waits for memory: a product of two numbers needs two loads. The way out is to use
 * each loaded number many times, on three levels, each as large as the memory it lives in:
 *
 *   registers   a tile of C, TILE_ROWS x (TILE_VECTORS vectors), stays in registers while p runs. One step loads
 *               a few vectors of a row of B and multiplies them by one number of A for each row of the tile: 14 x 2
 *               multiply-adds for 14 + 2 loads.
 *   L1 cache    a panel of B, DEPTH rows of one tile's width, is used by all the tiles of a block of A.
 *   L2 cache    a block of A, BLOCK_ROWS x DEPTH, is used by all panels of B.
 *
 *              n                         DEPTH                       n
 *         +---------+          m     +--------+             +----+----+----+
 *       m |    C    |  +=  BLOCK_ROWS |   A    |      DEPTH  | B0 | B1 | B2 |   panels, one tile wide
 *         +---------+                +--------+             +----+----+----+
 *
 * B is *packed*: its panels are copied, so that what a tile reads lies in one piece, in the order of reading.
 *
 *        B in memory, row after row              packed (tile 4 wide; 0 fills the last panel)
 *        b00 b01 b02 b03 | b04 b05               b00 b01 b02 b03  b10 b11 b12 b13  b20 ...   panel 0
 *        b10 b11 b12 b13 | b14 b15      ->       b04 b05  0   0   b14 b15  0   0   b24 ...   panel 1
 *        b20 ...
 *
 * Read as it lies, each row of a panel would be in another page of a large matrix, and the processor looks up
 * addresses page by page. Packing also lets B lie in memory in any order, transposed above all. A block of a large A is
 * packed likewise, by tiles: the numbers that one step multiplies with lie side by side. Small matrices need none of
 * that and are read where they are. (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS
 * 2008.) The copying is in pack.h; the steps that lead here, one idea each, are in ladder.h.
 *
 * Each element of C is summed in the order of p, whatever the tile it falls in, so a row's result does not depend on
 * which other rows are computed with it (a single row or column aside, which has a loop of its own).
 */
#define DEPTH ((dim)256)                            /* a panel of B: at most 32 kB, so it stays in L1 */
#define BLOCK_ROWS ((dim)240)                       /* a block of A: at most 480 kB, so it stays in L2 */
#define BLOCK_COLUMNS ((dim)(4096 / sizeof(real)))  /* the packed part of B: at most 1 MB */
#define STACK ((dim)(32768 / sizeof(real)))         /* packed in less than this: no memory need be asked for */
#define DIRECT_PANELS 8                             /* with fewer panels of B, packing A costs more than it gives */
#define FEW_ROWS (2 * TILE_ROWS)                    /* with fewer rows than this, packing B costs more than it gives */
#define WORTH_A_THREAD 1e6                         /* multiplications: with fewer, waking a thread costs more */
#define SMALL ((dim)(32768 / sizeof(real)))         /* a matrix that stays in L1 as it is */

/* One tile: C[rows x columns] (+)= A[rows x depth] B[depth x columns]. `rows` and `vectors` are constants where this is
 * inlined, so the loops over them disappear and `sum` lives in registers. */
static inline ALWAYS_INLINE void NAME(tile)(
    const int rows, const int vectors, dim depth, const real *a, dim a_row, dim a_col,
    const real *b, dim b_row, real *c, dim c_row, dim columns, int add)
{
    vec sum[TILE_ROWS][TILE_VECTORS];
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < vectors; v++) {
            sum[i][v] = (vec){0};
            __builtin_prefetch(c + i * c_row + v * LANES, 1);  /* needed when the loop below is done */
        }

    for (dim p = 0; p < depth; p++) {
        vec right[TILE_VECTORS];
        UNROLL for (int v = 0; v < vectors; v++) right[v] = load(b + v * LANES);
        UNROLL for (int i = 0; i < rows; i++)
            UNROLL for (int v = 0; v < vectors; v++) sum[i][v] += a[i * a_row] * right[v];
        a += a_col;
        b += b_row;
    }

    const dim last = columns - (vectors - 1) * LANES;  /* how many numbers of the last vector are real */
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int v = 0; v < vectors; v++) {
            real *to = c + i * c_row + v * LANES;
            if (v < vectors - 1 || last == LANES) store(to, add ? load(to) + sum[i][v] : sum[i][v]);
            else store_part(to, add ? load_part(to, last) + sum[i][v] : sum[i][v], last);
        }
    }
}

/* Any tile, by its size: the row of C that a big matrix ends with is as fast as a tile of that size can be. */
static void NAME(any_tile)(
    dim rows, dim columns, dim depth, const real *a, dim a_row, dim a_col,
    const real *b, dim b_row, real *c, dim c_row, int add)
{
#define TILE(r, v) NAME(tile)(r, v, depth, a, a_row, a_col, b, b_row, c, c_row, columns, add)
#define CASE(r) case r: if (r <= TILE_ROWS) { if (columns > LANES) TILE(r, 2); else TILE(r, 1); } break;
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
        CASE(13) CASE(14)
    }
#undef CASE
#undef TILE
}

/* What happens to C after the product, while it is still in the L1 cache: add the bias of each column, then bend. */
static void NAME(finish)(dim rows, dim columns, real *c, dim c_row, const real *bias, int activation)
{
    for (dim i = 0; i < rows; i++, c += c_row) {
        if (bias) for (dim j = 0; j < columns; j++) c[j] += bias[j];
        if (activation == RELU) NAME(relu)(columns, c, c);
        if (activation == GELU) NAME(gelu)(columns, c, c);
    }
}

/* The whole product on one thread. C's rows are contiguous; A and B may lie in any order. */
static int NAME(product)(const struct product *x)
{
    const dim m = x->m, n = x->n, k = x->k, a_row = x->a_row, a_col = x->a_col, b_row = x->b_row, b_col = x->b_col;
    const dim c_row = x->c_row;
    const real *a = x->a, *b = x->b, *bias = x->bias;
    real *c = x->c;
    const int finish = bias || x->activation;
    if (m == 0 || n == 0) return 0;
    if (k == 0) {
        for (dim i = 0; i < m && !x->accumulate; i++) memset(c + i * c_row, 0, n * sizeof(real));
        if (finish) NAME(finish)(m, n, c, c_row, bias, x->activation);
        return 0;
    }

    if (n == 1 && m > 1 && (c_row == 1) && !finish) { /* a matrix times a column: transposed, a row times a matrix */
        const struct product turned = {1, m, k, b, b_col, b_row, a, a_col, a_row, c, m, x->accumulate, NULL, 0};
        return NAME(product)(&turned);
    }
    if (m == 1 && (b_col == 1 || (b_row == 1 && a_col == 1))) {
        if (b_col == 1) NAME(row_by_rows)(n, k, a, a_col, b, b_row, c, x->accumulate);
        else NAME(row_by_columns)(n, k, a, b, b_col, c, x->accumulate);
        if (finish) NAME(finish)(1, n, c, c_row, bias, x->activation);
        return 0;
    }

    const int direct_b = b_col == 1 && (m <= FEW_ROWS || k * n <= SMALL);
    const int direct_a = n <= DIRECT_PANELS * TILE_COLUMNS || m * k <= 2 * SMALL;
    const int rows_first = direct_b && k * n <= SMALL;
    const dim block_rows = direct_a ? m : MIN(m, BLOCK_ROWS), depth = MIN(k, DEPTH), width = MIN(n, BLOCK_COLUMNS);
    const dim panels = direct_b ? n % LANES != 0 : (width + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const dim b_size = panels * TILE_COLUMNS * depth, a_size = direct_a ? 0 : block_rows * depth;
    real on_stack[STACK] __attribute__((aligned(64)));
    real *memory = NULL, *packed_b = on_stack;
    if (a_size + b_size > STACK) {
        memory = malloc((a_size + b_size) * sizeof(real) + 64);
        if (!memory) return -1;
        packed_b = (real *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    }
    real *packed_a = packed_b + b_size;

    for (dim p = 0; p < k; p += DEPTH) {
        const dim steps = MIN(DEPTH, k - p);
        const int add = x->accumulate || p > 0, end = finish && p + steps == k;
        for (dim j0 = 0; j0 < n; j0 += BLOCK_COLUMNS) {
            const dim j1 = MIN(n, j0 + BLOCK_COLUMNS);
            for (dim i0 = 0; i0 < m; i0 += block_rows) {
                const dim rows = MIN(block_rows, m - i0), tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
                if (!direct_a)
                    for (dim t = 0, i = 0; t < tiles; t++) {
                        const dim height = rows / tiles + (t < rows % tiles);
                        NAME(pack_tile)(height, steps, a + (i0 + i) * a_row + p * a_col, a_row, a_col, packed_a + i * steps);
                        i += height;
                    }
                /* A small B stays in L1 while A and C pass by once; of a large one, a panel does. */
                for (dim turn = 0; turn < (rows_first ? tiles : 1); turn++)
                  for (dim j = j0; j < j1; j += TILE_COLUMNS) {
                    const dim columns = MIN(TILE_COLUMNS, j1 - j);
                    const real *right = b + p * b_row + j * b_col;
                    dim right_row = b_row;
                    if (!direct_b || columns % LANES) {
                        real *panel = direct_b ? packed_b : packed_b + (j - j0) * steps;
                        if (i0 == 0 && turn == 0) NAME(pack_panel)(steps, columns, right, b_row, b_col, panel);
                        right = panel;
                        right_row = TILE_COLUMNS;
                    }
                    const dim first = rows_first ? turn : 0, last = rows_first ? turn + 1 : tiles;
                    for (dim t = first; t < last; t++) {
                        const dim height = rows / tiles + (t < rows % tiles), i = t * (rows / tiles) + MIN(t, rows % tiles);
                        const real *left = direct_a ? a + (i0 + i) * a_row + p * a_col : packed_a + i * steps;
                        real *to = c + (i0 + i) * c_row + j;
                        NAME(any_tile)(height, columns, steps, left, direct_a ? a_row : 1, direct_a ? a_col : height,
                                       right, right_row, to, c_row, add);
                        if (end) NAME(finish)(height, columns, to, c_row, bias ? bias + j : NULL, x->activation);
                    }
                }
            }
        }
    }
    free(memory);
    return 0;
}

/* The product by several threads: each computes some rows of C, or some columns if C is wide, as a product of its own.
 * Cuts fall between tiles, and each number of C is summed in the order of p as ever, so the number of threads changes
 * no bit of the result. */
static int NAME(matmul)(const struct product *x, int threads)
{
    const int by_rows = x->m >= x->n;
    const dim unit = by_rows ? TILE_ROWS : TILE_COLUMNS, units = ((by_rows ? x->m : x->n) + unit - 1) / unit;
    if (threads > units / 2) threads = (int)(units / 2);
    if (threads < 2 || (double)x->m * x->n * x->k < WORTH_A_THREAD || MIN(x->m, x->n) < 2) return NAME(product)(x);

    int failed = 0;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(| : failed)
#endif
    for (int t = 0; t < threads; t++) {
        const dim start = units * t / threads * unit, end = units * (t + 1) / threads * unit;
        struct product part = *x;
        if (by_rows) {
            part.m = MIN(end, x->m) - start;
            part.a = (const real *)x->a + start * x->a_row;
            part.c = (real *)x->c + start * x->c_row;
        } else {
            part.n = MIN(end, x->n) - start;
            part.b = (const real *)x->b + start * x->b_col;
            part.c = (real *)x->c + start;
            part.bias = x->bias ? (const real *)x->bias + start : NULL;
        }
        failed |= NAME(product)(&part);
    }
    return failed;
}
