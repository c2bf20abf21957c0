/* The matrix product C = A B, or C += A B: the one loop nest that decides how fast training is.
 *
 * Three loops would do:  for i, for j, for p:  C[i][j] += A[i][p] * B[p][j]
 * but then every multiplication waits for memory: a product of two numbers needs two loads. The way out is to use
 * each loaded number many times, on three levels, each as large as the memory it lives in:
 *
 *   registers   a tile of C, TILE_ROWS x (TILE_VECTORS vectors), stays in registers while p runs. One step loads
 *               a few vectors of a row of B and multiplies them by one number of A for each row of the tile: 12 x 2
 *               multiply-adds for 12 + 2 loads.
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
 * addresses page by page. Packing also lets B lie in memory in any order, transposed above all. A is read one number
 * at a time, so its order does not matter, and a large one is copied only to have few pages. Small matrices need none
 * of that and are read where they are. (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
 * TOMS 2008.)
 *
 * Each element of C is summed in the order of p, whatever the tile it falls in, so a row's result does not depend on
 * which other rows are computed with it (a single row or column aside, which has a loop of its own).
 */
#define TILE_COLUMNS (TILE_VECTORS * LANES)
#define DEPTH ((dim)256)                            /* a panel of B: at most 32 kB, so it stays in L1 */
#define BLOCK_ROWS ((dim)240)                       /* a block of A: at most 480 kB, so it stays in L2 */
#define BLOCK_COLUMNS ((dim)(4096 / sizeof(real)))  /* the packed part of B: at most 1 MB */
#define FEW_ROWS (2 * TILE_ROWS)                    /* with fewer rows than this, packing B costs more than it gives */
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
    }
#undef CASE
#undef TILE
}

/* Copy one panel of B: `depth` rows of `columns` numbers, with 0 up to the width of a tile. */
static void NAME(pack_panel)(dim depth, dim columns, const real *b, dim b_row, dim b_col, real *to)
{
    dim packed = 0; /* columns done so far */
    if (columns < TILE_COLUMNS) memset(to, 0, depth * TILE_COLUMNS * sizeof(real));
    if (b_col == 1) {
        for (; packed + LANES <= columns; packed += LANES)
            for (dim p = 0; p < depth; p++) store(to + p * TILE_COLUMNS + packed, load(b + p * b_row + packed));
        for (dim p = 0; p < depth; p++)
            copy_part(to + p * TILE_COLUMNS + packed, b + p * b_row + packed, columns - packed);
        return;
    }
    if (b_row == 1) /* B is transposed: squares of it are turned in registers */
        for (; packed + SQUARE <= columns; packed += SQUARE) {
            const real *from = b + packed * b_col;
            dim p = 0;
            for (; p + SQUARE <= depth; p += SQUARE)
                turn_square(from + p, b_col, to + p * TILE_COLUMNS + packed, TILE_COLUMNS);
            for (; p < depth; p++)
                for (dim s = 0; s < SQUARE; s++) to[p * TILE_COLUMNS + packed + s] = from[p + s * b_col];
        }
    for (dim p = 0; p < depth; p++)
        for (dim j = packed; j < columns; j++) to[p * TILE_COLUMNS + j] = b[p * b_row + j * b_col];
}

/* Copy a block of A into few pages, keeping its own order: the longer run in memory stays the inner one. */
static void NAME(copy_block)(dim rows, dim depth, const real **a, dim *a_row, dim *a_col, real *to)
{
    const int by_rows = *a_col == 1;
    const dim outer = by_rows ? rows : depth, inner = by_rows ? depth : rows;
    const dim outer_step = by_rows ? *a_row : *a_col, inner_step = by_rows ? 1 : *a_row;
    const dim stride = inner + 64 / sizeof(real);  /* not a power of two: rows would share one set of the cache */
    for (dim i = 0; i < outer; i++) {
        const real *from = *a + i * outer_step;
        if (inner_step == 1) memcpy(to + i * stride, from, inner * sizeof(real));
        else for (dim j = 0; j < inner; j++) to[i * stride + j] = from[j * inner_step];
    }
    *a = to;
    *a_row = by_rows ? stride : 1;
    *a_col = by_rows ? 1 : stride;
}

/* C[rows x columns] (+)= A[rows x depth] times one panel of B: tiles from top to bottom, their heights as even as can be. */
static void NAME(tiles_down)(
    dim rows, dim columns, dim depth, const real *a, dim a_row, dim a_col,
    const real *b, dim b_row, real *c, dim c_row, int add)
{
    const dim tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (dim t = 0, i = 0; t < tiles; t++) {
        const dim height = rows / tiles + (t < rows % tiles);
        NAME(any_tile)(height, columns, depth, a + i * a_row, a_row, a_col, b, b_row, c + i * c_row, c_row, add);
        i += height;
    }
}

/* The whole product. C's rows are contiguous (stride c_row between them); A and B may lie in any order.
 * Returns 0, or -1 when there is no memory to pack into. */
static int NAME(matmul)(
    dim m, dim n, dim k, const void *a_start, dim a_row, dim a_col,
    const void *b_start, dim b_row, dim b_col, void *c_start, dim c_row, int accumulate)
{
    const real *a = a_start, *b = b_start;
    real *c = c_start;
    if (k == 0 && !accumulate)
        for (dim i = 0; i < m; i++) memset(c + i * c_row, 0, n * sizeof(real));
    if (m == 0 || n == 0 || k == 0) return 0;

    if (a_col == 1 && b_row == 1 && (m == 1 || n == 1)) { /* a vector times a matrix: nothing is used twice */
        for (dim i = 0; i < m; i++)
            for (dim j = 0; j < n; j++) {
                const real dot = NAME(row_dot)(a + i * a_row, b + j * b_col, k);
                c[i * c_row + j] = accumulate ? c[i * c_row + j] + dot : dot;
            }
        return 0;
    }

    const int direct_b = b_col == 1 && (m <= FEW_ROWS || k * n <= SMALL);
    const int direct_a = n <= TILE_COLUMNS || m * k <= 2 * SMALL;
    const dim block_rows = direct_a ? m : MIN(m, BLOCK_ROWS), depth = MIN(k, DEPTH);
    const dim panels = (MIN(n, BLOCK_COLUMNS) + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const dim b_size = (direct_b ? 1 : panels) * TILE_COLUMNS * depth;
    const dim a_size = direct_a ? 0 : (MAX(block_rows, depth) * (MIN(block_rows, depth) + 16));
    real *memory = malloc((b_size + a_size) * sizeof(real) + 64);
    if (!memory) return -1;
    real *packed_b = (real *)(((uintptr_t)memory + 63) & ~(uintptr_t)63), *copied_a = packed_b + b_size;

    for (dim p = 0; p < k; p += DEPTH) {
        const dim steps = MIN(DEPTH, k - p);
        for (dim j0 = 0; j0 < n; j0 += BLOCK_COLUMNS) {
            const dim j1 = MIN(n, j0 + BLOCK_COLUMNS);
            for (dim i = 0; i < m; i += block_rows) {
                const dim rows = MIN(block_rows, m - i);
                const real *left = a + i * a_row + p * a_col;
                dim left_row = a_row, left_col = a_col;
                if (!direct_a) NAME(copy_block)(rows, steps, &left, &left_row, &left_col, copied_a);
                for (dim j = j0; j < j1; j += TILE_COLUMNS) {
                    const dim columns = MIN(TILE_COLUMNS, j1 - j);
                    const real *right = b + p * b_row + j * b_col;
                    dim right_row = b_row;
                    if (!direct_b || columns % LANES) {
                        real *panel = direct_b ? packed_b : packed_b + (j - j0) * steps;
                        if (i == 0) NAME(pack_panel)(steps, columns, right, b_row, b_col, panel);
                        right = panel;
                        right_row = TILE_COLUMNS;
                    }
                    NAME(tiles_down)(rows, columns, steps, left, left_row, left_col, right, right_row,
                                     c + i * c_row + j, c_row, accumulate || p > 0);
                }
            }
        }
    }
    free(memory);
    return 0;
}
