/* Where the largest element is: of a row, and down columns. Built on the largest of a row, reductions.h. */
/* Where the first largest number of a row is: the largest of each stretch tells which stretch has it, and only that one
 * is searched, which is short enough to be still in the L1 cache then. */
#define SEARCHED ((dim)4096)

static dim NAME(row_argmax)(const real *x, dim n)
{
    real best = NAME(row_max)(x, MIN(n, SEARCHED));
    dim from = 0;
    for (dim at = SEARCHED; at < n && best == best; at += SEARCHED) {
        const real next = NAME(row_max)(x + at, MIN(n - at, SEARCHED));
        if (next > best || next != next) best = next, from = at;
    }

    while (best != best) { /* nan equals nothing */
        if (x[from] != x[from]) return from;
        from++;
    }
    for (;; from += 4 * LANES) {
        UNROLL for (int u = 0; u < 4; u++) __builtin_prefetch(x + n + from + u * LANES); /* the next row, meanwhile */
        uint64_t found = 0; /* a bit for each of 4 vectors' numbers; behind the row are zeros, which come too late */
        if (from + 4 * LANES <= n)
            UNROLL for (int u = 0; u < 4; u++) found |= equal_bits(load(x + from + u * LANES), every(best)) << u * LANES;
        else
            for (int u = 0; from + u * LANES < n; u++) {
                const dim at = from + u * LANES;
                found |= equal_bits(some(x + at, MIN(LANES, n - at)), every(best)) << u * LANES;
            }
        if (found) return from + __builtin_ctzll(found);
    }
}

static void NAME(argmax)(dim outer, dim count, dim inner, const void *start, int64_t *out)
{
    const real *x = start;
    for (dim o = 0; o < outer; o++, x += count * inner, out += inner) {
        if (inner == 1) {
            out[0] = NAME(row_argmax)(x, count);
            continue;
        }
        for (dim j = 0; j < inner; j += COLUMNS) {
            const dim width = MIN(COLUMNS, inner - j);
            real best[COLUMNS];
            lane_index where[COLUMNS]; /* as wide as a real, so that both go through one vector loop */
            for (dim i = 0; i < width; i++) best[i] = x[j + i], where[i] = 0;
            for (dim r = 1; r < count; r++)
                for (dim i = 0; i < width; i++) {
                    const real next = x[r * inner + j + i];
                    const int take = (next > best[i]) | ((next != next) & (best[i] == best[i]));
                    best[i] = take ? next : best[i];
                    where[i] = take ? (lane_index)r : where[i];
                }
            for (dim i = 0; i < width; i++) out[j + i] = where[i];
        }
    }
}
