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
 * addresses page by page. Packing also lets B lie in memory in any order, transposed above all. A block of a large A
 * is packed likewise, by tiles: the numbers that one step multiplies with lie side by side. Small matrices need none of
 * that and are read where they are. (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS
 * 2008.) The tile is in tile.h, the copying in pack.h, the memory for it in workspace.c; the steps that lead here, one
 * idea each, are in ladder.h.
 *
 * Threads share the packed B. Together they pack it, wait until it is there, and then each takes a block of A, packs
 * and multiplies it, and takes the next, until there is none: one that is slowed down takes fewer.
 *
 *        |  pack B, p < DEPTH  |  blocks of A  |  pack B, p < 2 DEPTH  |  blocks of A  | ...
 *   0    |  panels 0 1 2       |  0   2   4    |  panels 0 1 2         |  0   3        |
 *   1    |  panels 3 4 5       |  1   3        |  panels 3 4 5         |  1   2    4   |
 *
 * Each element of C is summed in the order of p, whatever the tile it falls in. So a row's result depends neither on
 * which other rows are computed with it (a single row or column aside, which has a loop of its own) nor on threads.
 */
#define DEPTH ((dim)256)                    /* a panel of B: 32 kB at most, so it stays in L1 */
#define BLOCK_ROWS ((dim)240)               /* a block of A: 480 kB at most, so it stays in L2 */
#define BLOCK_COLUMNS ((dim)4096)           /* the packed part of B: 8 MB at most, so it stays in L3 */
#define STACK ((dim)(32768 / sizeof(real))) /* packed in less than this: no memory need be borrowed */
#define SMALL ((dim)(32768 / sizeof(real))) /* a matrix that stays in L1 as it is */
#define DIRECT_PANELS 8                     /* with fewer panels of B, packing A costs more than it gives */
#define FEW_ROWS (2 * TILE_ROWS)            /* with fewer rows than this, packing B costs more than it gives */
#define LEAST_TILES 4                       /* in a block: with fewer, fetching a panel costs more than using it */
#define BLOCKS_PER_THREAD 4                 /* so many at least, or who is slow would keep the others waiting */
#define WORTH_A_THREAD 1e6                  /* multiplications: with fewer, waking a thread costs more */

/* How a product is cut and packed: decided once, from its size, and then the same for all threads. */
struct NAME(plan) {
    int threads, direct_a, direct_b; /* direct: read where it lies */
    dim depth, width, height;        /* of a part: `depth` columns of A, `width` columns of B, `height` rows of A */
    dim width_of_unit;               /* what one thread takes at once: a block of A and so many columns of B */
    dim a_size, b_size;
    real *packed_a, *packed_b; /* of A, each thread has its own */
};

/* What is packed of B at a time: `steps` rows from p on, the columns from `column` to `end`. */
struct NAME(slice) {
    dim p, steps, column, end;
};

static inline dim NAME(parts)(dim n, dim size) { return (n + size - 1) / size; }

/* Cut n into equal parts of about `size` at most, rounded up to full units, and return their size; the last is less. */
static inline dim NAME(cut)(dim n, dim size, dim unit)
{
    return n <= size ? n : NAME(parts)(NAME(parts)(n, NAME(parts)(n, size)), unit) * unit;
}

/* Make the plan. What is small is read where it lies: copying takes as long as some multiplications of each number. */
static struct NAME(plan) NAME(decide)(const struct product *x, int threads)
{
    struct NAME(plan) plan = {.threads = threads};
    const int small_b = x->k * x->n <= SMALL;
    plan.direct_b = x->b_col == 1 && (x->m <= FEW_ROWS || small_b);
    plan.direct_a = x->n <= DIRECT_PANELS * TILE_COLUMNS || x->m * x->k <= 2 * SMALL;
    plan.depth = NAME(cut)(x->k, DEPTH, 1);
    plan.width = plan.width_of_unit = MIN(x->n, BLOCK_COLUMNS);
    if (plan.direct_b && small_b && x->n > TILE_COLUMNS) plan.height = TILE_ROWS; /* B stays in L1 while A passes by */
    else plan.height = NAME(cut)(x->m, BLOCK_ROWS, TILE_ROWS); /* all panels read it: it stays in L2, packed or not */
    if (threads > 1) {
        const dim units = threads * BLOCKS_PER_THREAD, rows = NAME(cut)(x->m, NAME(parts)(x->m, units), TILE_ROWS);
        plan.height = MIN(plan.height, MAX(rows, LEAST_TILES * TILE_ROWS));
        const dim across = NAME(parts)(units, NAME(parts)(x->m, plan.height)); /* if there are too few blocks of A */
        plan.width_of_unit = NAME(cut)(plan.width, NAME(parts)(plan.width, across), TILE_COLUMNS);
    }
    if (threads == 1 && !plan.direct_b && x->m <= plan.height)
        plan.width = MIN(x->n, TILE_COLUMNS); /* one block of A: each panel of B is used while L1 still has the copy */
    const dim panels = plan.direct_b ? x->n % LANES != 0 : NAME(parts)(plan.width, TILE_COLUMNS);
    plan.b_size = panels * TILE_COLUMNS * plan.depth;
    plan.a_size = plan.direct_a ? 0 : plan.height * plan.depth;
    return plan;
}

/* Where panel j of B is read: packed, or as it lies. Only full vectors can be read as they lie. */
static inline int NAME(lies_well)(const struct NAME(plan) *plan, const struct NAME(slice) *s, dim j)
{
    return plan->direct_b && MIN(TILE_COLUMNS, s->end - j) % LANES == 0;
}
static inline real *NAME(packed_panel)(const struct NAME(plan) *plan, const struct NAME(slice) *s, dim j)
{
    return plan->packed_b + (plan->direct_b ? 0 : (j - s->column) * s->steps); /* of a direct B: the last one only */
}
static inline const real *NAME(b_at)(const struct product *x, dim p, dim j)
{
    return (const real *)x->b + p * x->b_row + j * x->b_col;
}

/* Pack what is needed of a slice of B; threads take panels in turn. */
static void NAME(pack_slice)(const struct product *x, const struct NAME(plan) *plan, const struct NAME(slice) *s)
{
    SHARED(for)
    for (dim j = s->column; j < s->end; j += TILE_COLUMNS) {
        const dim columns = MIN(TILE_COLUMNS, s->end - j);
        const real *b = NAME(b_at)(x, s->p, j);
        real *to = NAME(packed_panel)(plan, s, j);
        if (NAME(lies_well)(plan, s, j)) continue;
        if (columns <= LANES && x->b_col == 1) NAME(copy_rows)(s->steps, columns, b, x->b_row, to, TILE_COLUMNS);
        else NAME(pack_panel)(s->steps, columns, b, x->b_row, x->b_col, to);
    }
}

/* A block of A from `row` on, times the columns of a slice of B from `column` to `end`. The block has tiles of two
 * heights, `height` + 1 and `height`, so that none is left with a row or two: they would be slow. */
static void NAME(block)(
    const struct product *x, const struct NAME(plan) *plan, const struct NAME(slice) *s,
    dim row, dim column, dim end, real *packed_a)
{
    const dim rows = MIN(plan->height, x->m - row), tiles = NAME(parts)(rows, TILE_ROWS), height = rows / tiles;
    const dim taller = rows % tiles, split = taller * (height + 1); /* tiles of height + 1, and their rows */
    const int add = x->accumulate || s->p > 0, last = s->p + s->steps == x->k;
    const real *a = (const real *)x->a + row * x->a_row + s->p * x->a_col;
    if (!plan->direct_a && (s->column == 0 || plan->height < x->m)) /* else it is there, from the panel before */
        NAME(pack_block)(taller, tiles, height, s->steps, a, x->a_row, x->a_col, packed_a);

    for (dim j = column; j < end; j += TILE_COLUMNS) {
        const dim columns = MIN(TILE_COLUMNS, end - j);
        const int direct = NAME(lies_well)(plan, s, j);
        const real *b = direct ? NAME(b_at)(x, s->p, j) : NAME(packed_panel)(plan, s, j);
        const dim b_row = direct ? x->b_row : TILE_COLUMNS;
        real *c = (real *)x->c + row * x->c_row + j;
        const struct NAME(ending) ending = {x->bias ? (const real *)x->bias + j : NULL,
                                            x->activation == RELU ? 0 : -INFINITY};
        for (int part = 0; part < 2; part++) {
            const dim count = part ? tiles - taller : taller, h = part ? height : height + 1, from = part ? split : 0;
            if (plan->direct_a)
                NAME(column_of_tiles)(count, h, columns, s->steps, a + from * x->a_row, h * x->a_row, x->a_row,
                                      x->a_col, b, b_row, c + from * x->c_row, x->c_row, add,
                                      last && (x->bias || x->activation) ? &ending : NULL);
            else
                NAME(column_of_tiles)(count, h, columns, s->steps, packed_a + from * s->steps, h * s->steps, 1, h,
                                      b, b_row, c + from * x->c_row, x->c_row, add,
                                      last && (x->bias || x->activation) ? &ending : NULL);
        }
        if (last && x->activation == GELU) NAME(finish)(rows, columns, c, x->c_row, NULL, GELU);
    }
}

/* All blocks of A times a slice of B; a thread that has done one takes the next. */
static void NAME(multiply_slice)(
    const struct product *x, const struct NAME(plan) *plan, const struct NAME(slice) *s, real *packed_a)
{
    if (plan->threads == 1) { /* the loop below, without asking anybody: small products take less time than that */
        for (dim row = 0; row < x->m; row += plan->height) NAME(block)(x, plan, s, row, s->column, s->end, packed_a);
        return;
    }
    SHARED(for collapse(2) schedule(dynamic))
    for (dim row = 0; row < x->m; row += plan->height)
        for (dim column = s->column; column < s->end; column += plan->width_of_unit)
            NAME(block)(x, plan, s, row, column, MIN(s->end, column + plan->width_of_unit), packed_a);
}

/* One thread's share of the product. At the end of each shared loop, threads wait for each other. */
static void NAME(share)(const struct product *x, const struct NAME(plan) *plan, int thread)
{
    struct NAME(slice) s;
    for (s.p = 0; s.p < x->k; s.p += s.steps) {
        s.steps = MIN(plan->depth, x->k - s.p);
        for (s.column = 0; s.column < x->n; s.column = s.end) {
            s.end = MIN(x->n, s.column + plan->width);
            if (plan->b_size) NAME(pack_slice)(x, plan, &s);
            NAME(multiply_slice)(x, plan, &s, plan->packed_a + thread * plan->a_size);
        }
    }
}

/* What needs no tiles: nothing to add up, or one row (or column: transposed, a row). Return whether it was that. */
static int NAME(special)(const struct product *x)
{
    const int row = x->m == 1 && (x->b_col == 1 || (x->b_row == 1 && x->a_col == 1));
    if (x->m == 0 || x->n == 0) return 1;
    if (x->n == 1 && x->m > 1 && x->c_row == 1 && x->k && !x->bias && !x->activation) {
        const struct product turned = {1, x->m, x->k, x->b, x->b_col, x->b_row, x->a, x->a_col, x->a_row, x->c, x->m,
                                       x->accumulate, NULL, NONE};
        return NAME(special)(&turned);
    }
    if (x->k && !row) return 0;
    if (x->k == 0)
        for (dim i = 0; i < x->m && !x->accumulate; i++) memset((real *)x->c + i * x->c_row, 0, x->n * sizeof(real));
    else if (x->b_col == 1) NAME(row_by_rows)(x->n, x->k, x->a, x->a_col, x->b, x->b_row, x->c, x->accumulate);
    else NAME(row_by_columns)(x->n, x->k, x->a, x->b, x->b_col, x->c, x->accumulate);
    NAME(finish)(x->m, x->n, x->c, x->c_row, x->bias, x->activation);
    return 1;
}

/* The whole product. C's rows are contiguous; A and B may lie in any order. Return -1 if there is no memory. */
static int NAME(matmul)(const struct product *x, int threads)
{
    if (NAME(special)(x)) return 0;
    if ((double)x->m * x->n * x->k < WORTH_A_THREAD) threads = 1;
    struct NAME(plan) plan = NAME(decide)(x, threads);
    real on_stack[STACK] __attribute__((aligned(64)));
    const dim size = plan.b_size + threads * plan.a_size;
    plan.packed_b = size <= STACK ? on_stack : minidist_borrow(size * sizeof(real));
    if (!plan.packed_b) return -1;
    plan.packed_a = plan.packed_b + plan.b_size;
    if (threads == 1) NAME(share)(x, &plan, 0);
    else {
        SHARED(parallel num_threads(threads))
        NAME(share)(x, &plan, this_thread());
    }
    if (size > STACK) minidist_give_back(plan.packed_b);
    return 0;
}
