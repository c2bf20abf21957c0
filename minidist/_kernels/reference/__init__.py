"""Every kernel in plain NumPy: what the compiled ones compute, said in the fewest words.

These are the definitions. The compiled kernels have the same names and signatures and are tested against these;
where no C compiler was found, the engine runs on these. A reader who wants to know *what* reads the files here, one for
each idea; *why the others are faster* stands in the header that each of them names.

All kernels take float32 or float64 and answer in the same dtype. Inputs may be read-only and in any memory order.
A full reduction gives a 0-d array, so that a result is always an array.
"""

from minidist._kernels.reference.causal_attention import attention, attention_backward
from minidist._kernels.reference.elementwise import gelu, gelu_backward, relu, relu_backward
from minidist._kernels.reference.optimizers import adamw, sgd
from minidist._kernels.reference.products import linear, matmul, threads
from minidist._kernels.reference.ranks import (
    COMPLETE,
    MEETING,
    SUMMED,
    UNLIKE,
    address_of,
    has_reached,
    meet_and_sum,
    store_release,
    sum_into_all,
    sum_staged,
)
from minidist._kernels.reference.reductions import argmax, log_sum_exp, max, sum, sum_of_squares
from minidist._kernels.reference.rows import (
    cross_entropy,
    cross_entropy_backward,
    layer_norm,
    layer_norm_backward,
    softmax,
    softmax_backward,
)

__all__ = [
    "COMPLETE",
    "MEETING",
    "SUMMED",
    "UNLIKE",
    "adamw",
    "address_of",
    "argmax",
    "attention",
    "attention_backward",
    "cross_entropy",
    "cross_entropy_backward",
    "gelu",
    "gelu_backward",
    "has_reached",
    "layer_norm",
    "layer_norm_backward",
    "linear",
    "log_sum_exp",
    "matmul",
    "max",
    "meet_and_sum",
    "relu",
    "relu_backward",
    "sgd",
    "softmax",
    "softmax_backward",
    "store_release",
    "sum",
    "sum_into_all",
    "sum_of_squares",
    "sum_staged",
    "threads",
]
