/* One row times a matrix: each number of the matrix is used once, so this runs at the speed of memory.
 *
 * What helps is to have many sums on the way at once, because each waits four cycles for the one before. A column
 * times a matrix is the same thing transposed, and a layer with one output or a batch of one example ends here.
 */
#define WIDE 8 /* vectors of sums at once */

/* c (+)= a B, with B's rows contiguous: a stretch of WIDE vectors of c stays in registers. */
static void NAME(row_by_rows)(dim n, dim k, const real *a, dim a_step, const real *b, dim b_row, real *c, int add)
{
    dim j = 0;
    for (; j + WIDE * LANES <= n; j += WIDE * LANES) {
        vec sum[WIDE];
        UNROLL for (int v = 0; v < WIDE; v++) sum[v] = (vec){0};
        for (dim p = 0; p < k; p++)
            UNROLL for (int v = 0; v < WIDE; v++) sum[v] += a[p * a_step] * load(b + p * b_row + j + v * LANES);
        UNROLL for (int v = 0; v < WIDE; v++) {
            real *to = c + j + v * LANES;
            store(to, add ? load(to) + sum[v] : sum[v]);
        }
    }
    for (; j + LANES <= n; j += LANES) { /* one vector more: four sums for it, each of every fourth step */
        const real *from = b + j;
        vec sum[4] = {{0}};
        dim p = 0;
        for (; p + 4 <= k; p += 4)
            UNROLL for (int u = 0; u < 4; u++) sum[u] += a[(p + u) * a_step] * load(from + (p + u) * b_row);
        for (; p < k; p++) sum[0] += a[p * a_step] * load(from + p * b_row);
        sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        store(c + j, add ? load(c + j) + sum[0] : sum[0]);
    }
    if (j < n) {
        vec sum = {0};
        for (dim p = 0; p < k; p++) sum += a[p * a_step] * load_part(b + p * b_row + j, n - j);
        store_part(c + j, add ? load_part(c + j, n - j) + sum : sum, n - j);
    }
}

/* c (+)= a B, with B's columns contiguous, as a is: SQUARE columns at a time share what is loaded of a. Their vectors
 * of partial sums are folded to 16 bytes each, and turned, so that one addition more gives all the results. */
static void NAME(row_by_columns)(dim n, dim k, const real *a, const real *b, dim b_col, real *c, int add)
{
    const dim full = k / LANES * LANES;
    dim j = 0;
    for (; j + SQUARE <= n; j += SQUARE) {
        vec sum[SQUARE][2];
        UNROLL for (int s = 0; s < SQUARE; s++) sum[s][0] = sum[s][1] = (vec){0};
        const real *column = b + j * b_col;
        dim p = 0;
        for (; p + 2 * LANES <= full; p += 2 * LANES)
            UNROLL for (int s = 0; s < SQUARE; s++)
                UNROLL for (int u = 0; u < 2; u++)
                    sum[s][u] += load(a + p + u * LANES) * load(column + s * b_col + p + u * LANES);
        if (p < full)
            UNROLL for (int s = 0; s < SQUARE; s++) sum[s][0] += load(a + p) * load(column + s * b_col + p);
        if (full < k)
            UNROLL for (int s = 0; s < SQUARE; s++)
                sum[s][1] += load_part(a + full, k - full) * load_part(column + s * b_col + full, k - full);
        real folded[SQUARE][SQUARE], turned[SQUARE][SQUARE];
        UNROLL for (int s = 0; s < SQUARE; s++) {
            const vec both = sum[s][0] + sum[s][1];
            quad part = *(quad *)&both;
            UNROLL for (int q = 1; q < LANES / SQUARE; q++) part += ((quad *)&both)[q];
            *(quad *)folded[s] = part;
        }
        turn_square(folded[0], SQUARE, turned[0], SQUARE);
        quad result = *(quad *)turned[0];
        UNROLL for (int s = 1; s < SQUARE; s++) result += *(quad *)turned[s];
        if (add) result += *(quad *)(c + j);
        *(quad *)(c + j) = result;
    }
    for (; j < n; j++) {
        const real dot = NAME(row_dot)(a, b + j * b_col, k);
        c[j] = add ? c[j] + dot : dot;
    }
}
