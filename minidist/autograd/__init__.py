"""Automatic differentiation: run a computation forward, get its derivatives by walking it backward.

tensor.py             Tensor and Parameter: an array, and where it came from. Read this first.
tape.py               how operations are recorded, and how backward walks the record
ops_elementwise.py    one number in, one number out: add, exp, where, ...; the second explains the tenth
ops_shape.py          the same numbers in another arrangement: reshape, transpose, x[...], ...
ops_reduce.py         many numbers into one: sum, max, norm, softmax, ...
ops_linear.py         matrix products: matmul, linear, conv2d
ops_nn.py             what else neural networks are made of: cross_entropy, layer_norm, attention, ...
check.py              is this gradient right? Compare it with differences of function values
"""

from minidist.autograd import ops
from minidist.autograd.backward import WeightPart
from minidist.autograd.check import check_gradients
from minidist.autograd.parameter import Parameter, Watch
from minidist.autograd.tape import direct, joint, keep, no_grad, record
from minidist.autograd.tensor import Tensor

__all__ = [
    "Parameter",
    "Tensor",
    "Watch",
    "WeightPart",
    "check_gradients",
    "direct",
    "joint",
    "keep",
    "no_grad",
    "ops",
    "record",
]
