/* Copying parts of matrices into the order in which tiles read them. The picture stands in matmul.h. */
#define TILE_COLUMNS (TILE_VECTORS * LANES)

/* Copy rows of `count` numbers, `from_row` apart, to rows `to_row` apart, 0 up to full vectors behind. */
static void NAME(copy_rows)(dim rows, dim count, const real *from, dim from_row, real *to, dim to_row)
{
    for (dim r = 0; r < rows; r++, from += from_row, to += to_row) {
        __builtin_prefetch(from + 8 * from_row); /* each row is in another page: no prefetcher foresees it */
        dim j = 0;
        for (; j + LANES <= count; j += LANES) store(to + j, load(from + j));
        if (j < count) store(to + j, load_part(from + j, count - j));
    }
}

/* Copy `count` columns of numbers that lie one after the other, `from_column` apart, so that they become the columns of
 * rows: squares of 4 x 4 are turned in registers. The last square may reach back over one that is done. */
static void NAME(turn_columns)(dim rows, dim count, const real *from, dim from_column, real *to, dim to_row)
{
    dim r = 0;
    if (count >= SQUARE)
        for (; r + SQUARE <= rows; r += SQUARE)
            for (dim j = 0; j < count; j += SQUARE) {
                const dim s = MIN(j, count - SQUARE);
                turn_square(from + r + s * from_column, from_column, to + r * to_row + s, to_row);
            }
    for (; r < rows; r++)
        for (dim j = 0; j < count; j++) to[r * to_row + j] = from[r + j * from_column];
}

/* Copy one panel of B: `depth` rows of `columns` numbers, with 0 up to the width of a tile. */
static void NAME(pack_panel)(dim depth, dim columns, const real *b, dim b_row, dim b_col, real *to)
{
    if (columns <= TILE_COLUMNS - LANES || (b_col != 1 && columns < TILE_COLUMNS))
        memset(to, 0, depth * TILE_COLUMNS * sizeof(real));
    if (b_col == 1) NAME(copy_rows)(depth, columns, b, b_row, to, TILE_COLUMNS);
    else if (b_row == 1) NAME(turn_columns)(depth, columns, b, b_col, to, TILE_COLUMNS);
    else
        for (dim p = 0; p < depth; p++)
            for (dim j = 0; j < columns; j++) to[p * TILE_COLUMNS + j] = b[p * b_row + j * b_col];
}

/* Copy `rows` rows of A, at most a tile's: the numbers that one step of a tile multiplies with become neighbours. */
static void NAME(pack_tile)(dim rows, dim depth, const real *a, dim a_row, dim a_col, real *to)
{
    if (a_row == 1) {
        for (dim p = 0; p < depth; p++) {
            dim i = 0;
            for (; i + LANES <= rows; i += LANES) store(to + p * rows + i, load(a + p * a_col + i));
            copy_part(to + p * rows + i, a + p * a_col + i, rows - i);
        }
    } else if (a_col == 1) NAME(turn_columns)(depth, rows, a, a_row, to, rows);
    else
        for (dim p = 0; p < depth; p++)
            for (dim i = 0; i < rows; i++) to[p * rows + i] = a[i * a_row + p * a_col];
}

/* Copy a block of A: `taller` of its `tiles` have a row more than `height`. */
static void NAME(pack_block)(
    dim taller, dim tiles, dim height, dim depth, const real *a, dim a_row, dim a_col, real *to)
{
    for (dim t = 0; t < tiles; t++) {
        const dim rows = height + (t < taller);
        NAME(pack_tile)(rows, depth, a, a_row, a_col, to);
        a += rows * a_row;
        to += rows * depth;
    }
}
