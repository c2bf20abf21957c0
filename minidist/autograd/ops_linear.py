"""Matrix products, and the convolution that is one. Nearly all the time of training is spent in this file.

For y = x @ w the two gradients are matrix products as well: dx = dy @ w.T and dw = x.T @ dy. The second one
is `direct`: the kernel writes it where the parameter's gradient lives. Read next: `ops_nn.py`.
"""

from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from minidist import _kernels as kernels
from minidist.autograd.operands import operands, unbroadcast
from minidist.autograd.ops_elementwise import relu
from minidist.autograd.ops_shape import reshape
from minidist.autograd.tape import direct, keep, record
from minidist.autograd.tensor import Array, Tensor


def matmul(a: Any, b: Any) -> Tensor:
    """Multiply matrices as NumPy's `@`: (..., m, k) @ (..., k, n) -> (..., m, n), leading dims broadcast.

    A vector on the left is a row, on the right a column, and that dim is absent from the result.
    """
    a, b = operands(a, b)
    if a.ndim == 1:
        product = matmul(reshape(a, (1, a.size)), b)  # (..., 1, n), or (1,) if b is a vector too
        return reshape(product, (*product.shape[:-2], *product.shape[-1:]) if b.ndim > 1 else ())
    if b.ndim == 1:
        product = matmul(a, reshape(b, (b.size, 1)))  # (..., m, 1)
        return reshape(product, product.shape[:-1])
    a_shape, b_shape = a.shape, b.shape
    a_saved, b_saved = keep(a), keep(b)

    def to_a(g: Array) -> Array:
        return unbroadcast(kernels.matmul(g, b_saved().swapaxes(-1, -2)), a_shape)

    def to_b(g: Array) -> Array:
        return unbroadcast(kernels.matmul(a_saved().swapaxes(-1, -2), g), b_shape)

    def to_matrix(g: Array, out: Array | None, accumulate: bool) -> Array:
        return kernels.matmul(rows(a_saved()).T, rows(g), out, accumulate)

    # Where one matrix multiplies a stack of them, the stack is one tall matrix for the gradient of the one.
    return record(kernels.matmul(a.data, b.data), (a, to_a), (b, direct(to_matrix) if b.ndim == 2 else to_b))


def linear(x: Any, weight: Any, bias: Any = None, activation: str | None = None) -> Tensor:
    """Compute x @ weight + bias in one node: x (..., k), weight (k, n), bias (n,) or None -> (..., n).

    activation: "relu" bends the result while it is in the cache. The gradient of relu can be told from what comes out
        of it, so nothing more is kept; that of gelu cannot, which is why gelu is an operation of its own.
    """
    if bias is None:
        product = matmul(x, weight)
        return product if activation is None else relu(product)
    x, weight, bias = operands(x, weight, bias)
    if x.ndim == 1:
        return reshape(linear(reshape(x, (1, x.size)), weight, bias, activation), (bias.size,))
    if activation not in (None, "relu"):
        raise ValueError(f"linear can end with the activation 'relu' or None, got {activation!r}")
    x_saved, weight_saved = keep(x), keep(weight)
    y = kernels.linear(x.data, weight.data, bias.data, activation)  # (..., n)

    def through_relu(g: Array) -> Array:
        return kernels.relu_backward(g, y)

    def to_x(g: Array) -> Array:
        return kernels.matmul(g, weight_saved().T)

    def to_weight(g: Array, out: Array | None, accumulate: bool) -> Array:
        return kernels.matmul(rows(x_saved()).T, rows(g), out, accumulate)

    def to_bias(g: Array, out: Array | None, accumulate: bool) -> Array:
        return kernels.sum(rows(g), 0, False, out, accumulate)

    inputs = (x, to_x), (weight, direct(to_weight)), (bias, direct(to_bias))
    return record(y, *inputs, before=through_relu if activation else None)


def rows(x: Array) -> Array:
    """Return (..., n) as a matrix (rows, n)."""
    return x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])


def conv2d(x: Any, weight: Any, bias: Any = None, stride: int = 1, padding: int = 0) -> Tensor:
    """Slide filters over images: x (n, c, h, w), weight (o, c, kh, kw), bias (o,) or None -> (n, o, h', w').

    h' = (h + 2 padding - kh) // stride + 1, w' likewise; the border is padded with zeros. As usual in neural
    networks this is a correlation: the filter is not mirrored.

    What a filter sees at one place is a column of c kh kw numbers. All columns side by side make a matrix,
    and the convolution is one matrix product (Chellapilla et al. 2006, section 3):

        weight (o, c kh kw)  @  columns (c kh kw, n h' w')  =  y (o, n h' w')
    """
    x, weight = operands(x, weight)
    n, c, h, w, o, kh, kw = _conv2d_sizes(x.shape, weight.shape, padding)
    high, wide = (h + 2 * padding - kh) // stride + 1, (w + 2 * padding - kw) // stride + 1
    x_saved, weight_saved = keep(x), keep(weight)

    def columns(images: Array) -> Array:
        padded = np.zeros((c, n, h + 2 * padding, w + 2 * padding), images.dtype)
        padded[:, :, padding : padding + h, padding : padding + w] = images.swapaxes(0, 1)
        seen = sliding_window_view(padded, (kh, kw), axis=(2, 3))[:, :, ::stride, ::stride]
        seen = seen.transpose(0, 4, 5, 1, 2, 3)  # (c, kh, kw, n, h', w'): still the memory of padded
        return seen.reshape(c * kh * kw, n * high * wide)  # now a copy, because the windows overlap

    def flat(g: Array) -> Array:
        return g.swapaxes(0, 1).reshape(o, n * high * wide)

    def to_x(g: Array) -> Array:
        seen = kernels.matmul(weight_saved().reshape(o, c * kh * kw).T, flat(g))  # like columns
        seen = seen.reshape(c, kh, kw, n, high, wide)
        padded = np.zeros((c, n, h + 2 * padding, w + 2 * padding), g.dtype)
        for i in range(kh):  # each place of the filter saw a shifted image
            for j in range(kw):
                padded[:, :, i : i + stride * high : stride, j : j + stride * wide : stride] += seen[:, i, j]
        return padded[:, :, padding : padding + h, padding : padding + w].swapaxes(0, 1)

    def to_weight(g: Array, out: Array | None, accumulate: bool) -> Array:
        into = None if out is None else out.reshape(o, c * kh * kw)
        return kernels.matmul(flat(g), columns(x_saved()).T, into, accumulate).reshape(o, c, kh, kw)

    def to_bias(g: Array, out: Array | None, accumulate: bool) -> Array:
        return kernels.sum(g, (0, 2, 3), False, out, accumulate)

    y = kernels.matmul(weight.data.reshape(o, c * kh * kw), columns(x.data))  # (o, n h' w')
    inputs = [(x, to_x), (weight, direct(to_weight))]
    if bias is not None:
        _, bias = operands(weight, bias)
        if bias.shape != (o,):  # NumPy would broadcast a single number
            raise ValueError(f"conv2d needs a bias of shape ({o},), one number per filter, got {bias.shape}")
        y += bias.data[:, None]
        inputs.append((bias, direct(to_bias)))
    return record(y.reshape(o, n, high, wide).swapaxes(0, 1), *inputs)


def _conv2d_sizes(x: tuple[int, ...], weight: tuple[int, ...], padding: int) -> tuple[int, ...]:
    """Return n, c, h, w, o, kh, kw of two shapes that fit together (ValueError if they do not)."""
    if len(x) != 4 or len(weight) != 4 or x[1] != weight[1]:
        raise ValueError(
            f"conv2d needs x (n, c, h, w) and weight (o, c, kh, kw) with one c, got {x} and {weight}"
        )
    (n, c, h, w), (o, _, kh, kw) = x, weight
    if h + 2 * padding < kh or w + 2 * padding < kw:
        raise ValueError(
            f"conv2d: filters of {kh}x{kw} do not fit into images of {h}x{w} padded by {padding}"
        )
    return n, c, h, w, o, kh, kw
