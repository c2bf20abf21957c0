/* Causal attention in blocks, so that no (time, time) array of scores ever exists.
 *
 * For one head, with rows of q, k and v for each position:
 *
 *      S = scale q k^T        P = softmax of S's rows, up to the diagonal        out = P v
 *
 *                 keys ->
 *              +----+----+----+----+
 *    queries   | \  |    |    |    |      Work goes block by block, BLOCK x BLOCK scores at a time, which stay in the
 *       |      +----+----+----+----+      L1 cache from their birth to their last use. Blocks above the diagonal are
 *       v      | #  | \  |    |    |      never touched; in a block on it, \, tiles above the diagonal are left out.
 *              +----+----+----+----+
 *              | #  | #  | \  |    |
 *              +----+----+----+----+
 *
 * A softmax needs its whole row, and a block has only a part of it. So the row's largest score and sum are *running*:
 * when a later block brings a larger score, what was added up so far is scaled down to it. Forward leaves
 * log(sum(exp(S))) of each row. From it backward makes any block of P again, P = exp(S - log_sum_exp), which costs
 * less than to have kept it:
 *
 *      dv = P^T dout      dP = dout v^T      dS = P (dP - (dout . out))      dq = scale dS k      dk = scale dS^T q
 *
 * (Dao et al., "FlashAttention", NeurIPS 2022, algorithms 1 and 4.) The products are the tiles of matmul.h.
 */
#define BLOCK ((dim)64)

/* Which part of a block's product is needed, for a block on the diagonal: nothing for one below it. */
#ifndef MINIDIST_TRIANGLES
#define MINIDIST_TRIANGLES
enum triangle {
    WHOLE,        /* all of it */
    LOWER_RESULT, /* C is scores: row i ends at the diagonal */
    UPPER_RESULT, /* C is scores transposed: row i begins at the diagonal */
    LOWER_LEFT,   /* A is scores */
    UPPER_LEFT,   /* A is scores transposed */
};
#endif

/* C (+)= A B, at most BLOCK x BLOCK or BLOCK x d. B is read by panels, `b_panel` apart, in rows of full vectors. */
static void NAME(block_product)(
    enum triangle part, dim rows, dim columns, dim depth, const real *a, dim a_row, dim a_col,
    const real *b, dim b_row, dim b_panel, real *c, dim c_row, int add)
{
    const dim tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (dim t = 0, i = 0, end; t < tiles; t++, i = end) {
        const dim height = rows / tiles + (t < rows % tiles);
        end = i + height;
        const dim width = part == LOWER_RESULT ? end : columns;
        const dim start = part == UPPER_RESULT ? i / TILE_COLUMNS * TILE_COLUMNS : 0;
        const dim first = part == UPPER_LEFT ? i : 0, last = part == LOWER_LEFT ? end : depth;
        for (dim j = start; j < width; j += TILE_COLUMNS)
            NAME(any_tile)(height, MIN(TILE_COLUMNS, width - j), last - first, a + i * a_row + first * a_col, a_row, a_col,
                           b + j / TILE_COLUMNS * b_panel + first * b_row, b_row, c + i * c_row + j, c_row, add);
    }
}

/* Copy BLOCK rows of d numbers to panels of their transpose: (d, rows). */
static void NAME(pack_transposed)(dim rows, dim d, const real *x, dim step, real *to)
{
    for (dim j = 0; j < rows; j += TILE_COLUMNS)
        NAME(pack_panel)(d, MIN(TILE_COLUMNS, rows - j), x + j * step, 1, step, to + j * d);
}

/* Tiles load full vectors. Rows of another length are copied, with zeros behind. */
static const real *NAME(full_vectors)(dim rows, dim d, const real *x, dim *step, real *to)
{
    const dim width = (d + LANES - 1) / LANES * LANES;
    if (d == width) return x;
    memset(to, 0, rows * width * sizeof(real));
    for (dim r = 0; r < rows; r++) memcpy(to + r * width, x + r * *step, d * sizeof(real));
    *step = width;
    return to;
}

/* Forbid the future: in a block on the diagonal, row r has r + 1 scores. Returns how many numbers to work on. */
static inline dim NAME(mask)(real *score, dim r, int diagonal)
{
    if (!diagonal) return BLOCK;
    const dim width = MIN(BLOCK, (r + TILE_ROWS + LANES - 1) / LANES * LANES); /* beyond what a tile reads of the row */
    for (dim i = r + 1; i < width; i++) score[i] = -INFINITY;
    return width;
}

/* Forward for the queries [from, from + rows) of one head. Scores are kept transposed, one row for each key: so what
 * is done to each query, its largest score and its sum, is done to a vector of queries at once. */
static void NAME(attend)(
    dim from, dim rows, dim d, real scale, const real *queries, const real *k, dim k_step, const real *v, dim v_step,
    real *out, dim out_step, real *log_sum_exp)
{
    real scores[BLOCK * BLOCK], top[BLOCK], sum[BLOCK], shrink[BLOCK];
    if (rows < BLOCK) memset(scores, 0, sizeof scores); /* columns that are no queries: any number will do */
    for (dim i = 0; i < BLOCK; i++) top[i] = -INFINITY, sum[i] = 0;
    for (dim at = 0; at <= from; at += BLOCK) {
        const int diagonal = at == from;
        const dim count = diagonal ? rows : BLOCK;
        NAME(block_product)(diagonal ? UPPER_RESULT : WHOLE, count, rows, d, k + at * k_step, k_step, 1,
                            queries, TILE_COLUMNS, d * TILE_COLUMNS, scores, BLOCK, 0);
        if (diagonal) /* a key is not seen by the queries before it */
            for (dim key = 1; key < count; key++)
                for (dim i = 0; i < key; i++) scores[key * BLOCK + i] = -INFINITY;

        vec best[BLOCK / LANES];
        for (dim c = 0; c < BLOCK / LANES; c++) best[c] = load(scores + c * LANES);
        for (dim key = 1; key < count; key++)
            for (dim c = 0; c < BLOCK / LANES; c++)
                best[c] = NAME(larger)(best[c], load(scores + key * BLOCK + c * LANES));
        for (dim c = 0; c < BLOCK / LANES; c++) {
            const vec larger = NAME(larger)(load(top + c * LANES), scale * best[c]);
            const vec factor = exponential(load(top + c * LANES) - larger); /* 0 at the start, when top is -inf */
            store(shrink + c * LANES, factor);
            store(sum + c * LANES, load(sum + c * LANES) * factor);
            store(top + c * LANES, larger);
        }
        for (dim key = 0; key < count; key++) {
            real *score = scores + key * BLOCK;
            const dim first = diagonal ? MAX(0, key - TILE_ROWS) / LANES * LANES : 0; /* no tile reads before it */
            for (dim i = first; i < BLOCK; i += LANES) {
                const vec e = exponential(scale * load(score + i) - load(top + i));
                store(score + i, e);
                store(sum + i, load(sum + i) + e);
            }
        }
        for (dim r = 0; at && r < rows; r++)
            if (shrink[r] != 1)
                for (dim i = 0; i < d; i++) out[r * out_step + i] *= shrink[r];
        NAME(block_product)(diagonal ? LOWER_LEFT : WHOLE, rows, d, count, scores, 1, BLOCK,
                            v + at * v_step, v_step, TILE_COLUMNS, out, out_step, at > 0);
    }
    for (dim r = 0; r < rows; r++) {
        const real share = 1 / sum[r];
        for (dim i = 0; i < d; i++) out[r * out_step + i] *= share;
        log_sum_exp[r] = top[r] + (real)log(sum[r]);
    }
}

/* Backward for the keys [from, from + count) of one head, and all the queries that see them. */
struct NAME(head) {
    const real *q, *k, *v, *out, *grad, *log_sum_exp, *grads_out; /* grads_out: dout . out of each row */
    dim q_step, k_step, v_step, grad_step, dq_step, dk_step, dv_step;
    real *dq, *dk, *dv;
};

static void NAME(attend_back)(
    dim from, dim time, dim d, real scale, const struct NAME(head) *h, real *keys, real *values)
{
    real p[BLOCK * BLOCK], ds[BLOCK * BLOCK];
    const dim count = MIN(BLOCK, time - from);
    const real *k = h->k + from * h->k_step;
    real *dk = h->dk + from * h->dk_step, *dv = h->dv + from * h->dv_step;
    NAME(pack_transposed)(count, d, k, h->k_step, keys);
    NAME(pack_transposed)(count, d, h->v + from * h->v_step, h->v_step, values);
    for (dim at = from; at < time; at += BLOCK) {
        const int diagonal = at == from;
        const dim rows = MIN(BLOCK, time - at);
        const real *q = h->q + at * h->q_step, *grad = h->grad + at * h->grad_step;
        const enum triangle result = diagonal ? LOWER_RESULT : WHOLE;
        NAME(block_product)(result, rows, count, d, q, h->q_step, 1, keys, TILE_COLUMNS, d * TILE_COLUMNS, p, BLOCK, 0);
        NAME(block_product)(result, rows, count, d, grad, h->grad_step, 1, values, TILE_COLUMNS, d * TILE_COLUMNS,
                            ds, BLOCK, 0);
        for (dim r = 0; r < rows; r++) {
            real *score = p + r * BLOCK, *slope = ds + r * BLOCK;
            const dim width = NAME(mask)(score, r, diagonal);
            if (diagonal) for (dim i = r + 1; i < width; i++) slope[i] = 0; /* whatever was there: 0 * nan is nan */
            const real log_sum = h->log_sum_exp[at + r], along = h->grads_out[at + r];
            for (dim i = 0; i < width; i += LANES) {
                const vec share = exponential(scale * load(score + i) - log_sum);
                store(score + i, share);
                store(slope + i, scale * share * (load(slope + i) - along));
            }
        }
        const enum triangle turned = diagonal ? UPPER_LEFT : WHOLE;
        NAME(block_product)(turned, count, d, rows, p, 1, BLOCK, grad, h->grad_step, TILE_COLUMNS,
                            dv, h->dv_step, !diagonal);
        NAME(block_product)(turned, count, d, rows, ds, 1, BLOCK, q, h->q_step, TILE_COLUMNS, dk, h->dk_step, !diagonal);
        NAME(block_product)(diagonal ? LOWER_LEFT : WHOLE, rows, d, count, ds, BLOCK, 1, k, h->k_step, TILE_COLUMNS,
                            h->dq + at * h->dq_step, h->dq_step, from > 0);
    }
}

#define HEAD(x) ((real *)x.data + b * x.batch + h * x.head) /* where head h of example b begins */

/* Returns 0, or -1 when there is no memory for copies of one head. */
static int NAME(attention)(
    dim batch, dim heads, dim time, dim d, double scale, struct heads q, struct heads k, struct heads v,
    struct heads out, void *log_sum_exp)
{
    real *queries = malloc((BLOCK * d + time * (d + LANES)) * sizeof(real) + 1), *copy = queries + BLOCK * d;
    if (!queries) return -1;
    real *log_sums = log_sum_exp;
    for (dim b = 0; b < batch; b++)
        for (dim h = 0; h < heads; h++, log_sums += time) {
            dim v_step = v.row;
            const real *values = NAME(full_vectors)(time, d, HEAD(v), &v_step, copy);
            for (dim at = 0; at < time; at += BLOCK) {
                const dim rows = MIN(BLOCK, time - at);
                NAME(pack_transposed)(rows, d, HEAD(q) + at * q.row, q.row, queries);
                NAME(attend)(at, rows, d, (real)scale, queries, HEAD(k), k.row, values, v_step,
                             HEAD(out) + at * out.row, out.row, log_sums + at);
            }
        }
    free(queries);
    return 0;
}

static int NAME(attention_backward)(
    dim batch, dim heads, dim time, dim d, double scale, struct heads grad, struct heads q, struct heads k,
    struct heads v, struct heads out, const void *log_sum_exp, struct heads dq, struct heads dk, struct heads dv)
{
    const dim width = (d + LANES - 1) / LANES * LANES;
    real *memory = malloc((2 * BLOCK * d + time + 3 * time * width) * sizeof(real) + 1);
    if (!memory) return -1;
    real *keys = memory, *values = keys + BLOCK * d, *grads_out = values + BLOCK * d, *copies = grads_out + time;
    for (dim b = 0; b < batch; b++)
        for (dim h = 0; h < heads; h++) {
            struct NAME(head) head = {
                .v = HEAD(v), .out = HEAD(out), .log_sum_exp = (const real *)log_sum_exp + (b * heads + h) * time,
                .grads_out = grads_out, .q_step = q.row, .k_step = k.row, .v_step = v.row, .grad_step = grad.row,
                .dq = HEAD(dq), .dk = HEAD(dk), .dv = HEAD(dv), .dq_step = dq.row, .dk_step = dk.row, .dv_step = dv.row,
            };
            for (dim t = 0; t < time; t++)
                grads_out[t] = NAME(row_dot)(HEAD(grad) + t * grad.row, HEAD(out) + t * out.row, d);
            head.q = NAME(full_vectors)(time, d, HEAD(q), &head.q_step, copies);
            head.k = NAME(full_vectors)(time, d, HEAD(k), &head.k_step, copies + time * width);
            head.grad = NAME(full_vectors)(time, d, HEAD(grad), &head.grad_step, copies + 2 * time * width);
            for (dim at = 0; at < time; at += BLOCK)
                NAME(attend_back)(at, time, d, (real)scale, &head, keys, values);
        }
    free(memory);
    return 0;
}
#undef HEAD
