/* All kernels for one type `real`, and the table of them. Included by each_type.h; each file builds on those before. */
#include "vector.h"
#include "exponential.h"
#include "reductions.h"
#include "argmax.h"
#include "elementwise.h"
#include "pack.h"
#include "tile.h"
#include "one_row.h"
#include "matmul.h"
#if REAL_BYTES == 4
#include "ladder.h"
#endif
#include "rows.h"
#include "attention.h"
#include "optimizers.h"
#include "ranks.h"

#define FILL(kernel) .kernel = NAME(kernel)
static const struct kernels NAME(table) = {
    FILL(matmul),
#if REAL_BYTES == 4
    .ladder = {NAME(naive), NAME(reordered), NAME(blocked), NAME(packed), NAME(register_tiled), NAME(vectorised),
               NAME(threaded)},
#endif
    FILL(sum), FILL(max), FILL(argmax), FILL(sum_of_squares), FILL(log_sum_exp), FILL(softmax),
    FILL(softmax_backward), FILL(cross_entropy), FILL(cross_entropy_backward), FILL(layer_norm),
    FILL(layer_norm_backward), FILL(attention), FILL(attention_backward), FILL(gelu), FILL(gelu_backward), FILL(relu),
    FILL(relu_backward), FILL(sgd), FILL(adamw),
    FILL(sum_into_all),
};
