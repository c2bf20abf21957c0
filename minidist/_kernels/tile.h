/* A tile of C, the innermost of the loops of matmul.h: everything it adds up lies in registers.
 *
 *                 b: depth rows of one or two vectors
 *                 +----+----+
 *                 |         |          One step takes a row of b, and of each row of a one number. In AVX-512 that is
 *                 |         |          14 x 2 multiply-adds of 16 float32 for 14 + 2 loads, in AVX2 6 x 2 of 8 for
 *     a           +----+----+          6 + 2.
 *     +-------+   |         |
 *     | rows  |   |  sums   | -> c
 *     +-------+   +----+----+
 */
/* What happens to a finished sum before it is stored: the bias of its column is added, and what is below `least` is raised
 * to it, to 0 by ReLU and to -inf, so never, without it. Done here, it costs no pass over C. */
struct NAME(ending) {
    const real *bias; /* or NULL */
    real least;
};

/* One tile: C[rows x columns] (+)= A[rows x depth] B[depth x columns]. `rows` and `vectors` are constants where this is
 * inlined, so the loops over them disappear and `sum` lives in registers. */
static inline ALWAYS_INLINE void NAME(tile)(
    const int rows, const int vectors, dim depth, const real *a, dim a_row, dim a_col,
    const real *b, dim b_row, real *c, dim c_row, dim columns, int add,
    const struct NAME(ending) *ending)
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
#define PART (v < vectors - 1 ? LANES : last)
    if (add)
        UNROLL for (int i = 0; i < rows; i++)
            UNROLL for (int v = 0; v < vectors; v++) sum[i][v] += some(c + i * c_row + v * LANES, PART);
    if (ending) {
        vec bias[TILE_VECTORS];
        UNROLL for (int v = 0; v < vectors; v++) bias[v] = ending->bias ? some(ending->bias + v * LANES, PART) : (vec){0};
        UNROLL for (int i = 0; i < rows; i++) /* nan stays */
            UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = greater(every(ending->least), sum[i][v] + bias[v]);
    }
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < vectors; v++) store_some(c + i * c_row + v * LANES, sum[i][v], PART);
#undef PART
}

/* `count` tiles of `rows` rows, one beneath the other, which all read the same panel of B.
 *
 * There is a copy of the tile for each size: the row of tiles that a matrix ends with is as fast as such a tile can be.
 * And there is one for a packed A, where strides are known beforehand: no register is spent on them. */
static void NAME(column_of_tiles)(
    dim count, dim rows, dim columns, dim depth, const real *a, dim a_tile, dim a_row, dim a_col,
    const real *b, dim b_row, real *c, dim c_row, int add, const struct NAME(ending) *ending)
{
#define TILES(r, v, row, col) \
    for (dim t = 0; t < count; t++) \
        NAME(tile)(r, v, depth, a + t * a_tile, row, col, b, b_row, c + t * r * c_row, c_row, columns, add, \
                   ending)
#define CASE(r) \
    case r: \
        if (r > TILE_ROWS) break; \
        if (columns <= LANES) TILES(r, 1, a_row, a_col); \
        else if (a_row == 1 && a_col == r) TILES(r, 2, 1, r); \
        else TILES(r, 2, a_row, a_col); \
        break;
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
        CASE(13) CASE(14)
    }
#undef CASE
#undef TILES
}

/* One tile of any size. */
static inline void NAME(any_tile)(
    dim rows, dim columns, dim depth, const real *a, dim a_row, dim a_col,
    const real *b, dim b_row, real *c, dim c_row, int add)
{
    NAME(column_of_tiles)(1, rows, columns, depth, a, 0, a_row, a_col, b, b_row, c, c_row, add, NULL);
}

/* The same after the product, where the sums were not tiles, or the activation is too long to be part of each tile. */
static void NAME(finish)(dim rows, dim columns, real *c, dim c_row, const real *bias, int activation)
{
    for (dim i = 0; i < rows; i++, c += c_row) {
        if (bias) for (dim j = 0; j < columns; j++) c[j] += bias[j];
        if (activation == RELU) NAME(relu)(columns, c, c);
        if (activation == GELU) NAME(gelu)(columns, c, c);
    }
}
