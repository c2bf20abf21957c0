"""What else neural networks are made of: losses, normalisation, lookup, attention.

Several of these could be composed from the operations before. They stand as one node where a fused kernel is
faster or more accurate, or where the composition would keep large arrays on the tape. Read next: `check.py`.
"""

from functools import reduce
from math import sqrt
from typing import Any

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd.operands import operands
from minidist.autograd.ops_elementwise import multiply
from minidist.autograd.ops_linear import rows
from minidist.autograd.tape import direct, joint, keep, record
from minidist.autograd.tensor import Array, Tensor
from minidist.random import uniform


def cross_entropy(logits: Any, labels: Any, count: float) -> Tensor:
    """Sum -log softmax(logits)[label] over all examples here, and divide by `count`: a 0-d tensor.

    logits: (..., c).  labels: (...) integers from 0 to c - 1 (IndexError for others).
    count: the number of examples in the *global* batch, whoever holds them. Sums of such losses over ranks,
        microbatches and accumulation steps are the mean loss over the global batch, however it was cut.
    """
    (logits,) = operands(logits)
    if not count > 0:
        raise ValueError(
            f"cross_entropy divides by the number of examples in the global batch, got count={count}"
        )
    labels = np.array(labels.data if isinstance(labels, Tensor) else labels)  # copied: may be refilled
    shape, logits_saved = logits.shape, keep(logits)
    if labels.shape != shape[:-1]:
        raise ValueError(
            f"cross_entropy needs one label for each example: {shape[:-1]} of them, got {labels.shape}"
        )
    labels = labels.reshape(-1)  # (n,)
    losses, log_sums = kernels.cross_entropy(rows(logits.data), labels)  # (n,), (n,)
    loss = kernels.sum(losses)
    loss /= count  # in place, so that its dtype stays

    def gradient(g: Array) -> Array:
        each = np.empty_like(losses)  # (n,)
        each.fill(g / count)
        return kernels.cross_entropy_backward(rows(logits_saved()), labels, log_sums, each).reshape(shape)

    return record(loss, (logits, gradient))


def layer_norm(x: Any, gain: Any, bias: Any, eps: float = 1e-5) -> Tensor:
    """Bring each vector to mean 0 and variance 1, then scale and shift it (Ba et al. 2016, section 3).

    x (..., d), gain (d,), bias (d,) -> (..., d).
    """
    x, gain, bias = operands(x, gain, bias)
    shape, x_saved, gain_saved = x.shape, keep(x), keep(gain)
    y, mean, rstd = kernels.layer_norm(rows(x.data), gain.data, bias.data, eps)  # (n, d), (n,), (n,)

    def gradient(g: Array) -> tuple[Array, Array, Array]:
        dx, dgain, dbias = kernels.layer_norm_backward(rows(g), rows(x_saved()), gain_saved(), mean, rstd)
        return dx.reshape(shape), dgain, dbias

    to_x, to_gain, to_bias = joint(gradient, 3)
    return record(y.reshape(shape), (x, to_x), (gain, to_gain), (bias, to_bias))


def dropout(x: Any, rate: float, seed: int, purpose: str, step: int, start: int = 0) -> Tensor:
    """Set elements to 0 with probability `rate`, divide the others by 1 - rate (Srivastava et al. 2014).

    The mask is a function of (seed, purpose, step, element), not of the rank that draws it: x holds elements
    `start` to `start + x.size` of the tensor that one process would have.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"dropout needs a rate from 0 to below 1, got {rate}")
    (x,) = operands(x)
    kept = uniform(seed, purpose, step, start, start + x.size) >= rate
    return multiply(x, kept.reshape(x.shape) / (1 - rate))


def embedding(weight: Any, indices: Any) -> Tensor:
    """Look up rows: weight (rows, d), indices (...) integers -> (..., d); repeated rows add their gradients."""
    (weight,) = operands(weight)
    indices = np.array(indices.data if isinstance(indices, Tensor) else indices)
    if weight.ndim != 2 or indices.dtype.kind not in "iu":
        raise TypeError(
            "embedding needs weight (rows, d) and integer indices, "
            f"got shape {weight.shape} and dtype {indices.dtype}"
        )
    count, width = weight.shape
    if indices.size and not (indices.min() >= 0 and indices.max() < count):
        raise IndexError(
            f"embedding has rows 0 to {count - 1}, got indices from {indices.min()} to {indices.max()}"
        )

    def gradient(g: Array, out: Array | None, accumulate: bool) -> Array:
        if out is None:
            out, accumulate = np.empty((count, width), g.dtype), False
        if not accumulate:
            out[...] = 0
        if indices.size:
            flat = indices.ravel()
            order = flat.argsort(kind="stable")  # equal indices side by side, then one sum for each run
            ordered = flat[order]
            starts = np.flatnonzero(np.diff(ordered, prepend=-1))
            out[ordered[starts]] += np.add.reduceat(rows(g)[order], starts, axis=0)
        return out

    return record(weight.data[indices], (weight, direct(gradient)))


def max_pool2d(x: Any, size: int) -> Tensor:
    """Take the largest value of each size x size square: (n, c, h, w) -> (n, c, h / size, w / size)."""
    (x,) = operands(x)
    n, c, h, w = x.shape
    if h % size or w % size:
        raise ValueError(
            f"max_pool2d: squares of {size} do not tile images of {h}x{w}; pad or crop them first"
        )

    def corners(images: Array) -> list[Array]:
        return [images[:, :, i::size, j::size] for i in range(size) for j in range(size)]

    y = reduce(np.maximum, corners(x.data))
    x_saved = keep(x)

    def gradient(g: Array) -> Array:
        largest = [corner == y for corner in corners(x_saved())]
        share = g / np.sum(largest, axis=0, dtype=g.dtype)  # equal ones share evenly
        dx = np.empty((n, c, h, w), g.dtype)
        for corner, mask in zip(corners(dx), largest, strict=True):
            np.multiply(share, mask, out=corner)
        return dx

    return record(y, (x, gradient))


def causal_attention(q: Any, k: Any, v: Any) -> Tensor:
    """Mix values of this and earlier positions: softmax(q k^T / sqrt(dim)) v (Vaswani et al. 2017, 3.2.1).

    q, k, v (batch, heads, time, dim) -> (batch, heads, time, dim).
    """
    q, k, v = operands(q, k, v)
    if not (q.ndim == 4 and q.shape == k.shape == v.shape):
        raise ValueError(
            "causal_attention needs q, k, v of one shape (batch, heads, time, dim), "
            f"got {q.shape}, {k.shape}, {v.shape}"
        )
    time, dim = q.shape[-2:]
    scale = 1 / sqrt(dim)
    q_saved, k_saved, v_saved = keep(q), keep(k), keep(v)
    scores = kernels.matmul(q.data, k.data.swapaxes(-1, -2))  # (batch, heads, time, time)
    scores *= scale
    scores += np.triu(np.full((time, time), -np.inf, scores.dtype), 1)  # nobody looks ahead
    p = kernels.softmax(scores)

    def gradient(g: Array) -> tuple[Array, Array, Array]:
        dp = kernels.matmul(g, v_saved().swapaxes(-1, -2))
        dscores = kernels.softmax_backward(dp, p)
        dscores *= scale
        return (
            kernels.matmul(dscores, k_saved()),
            kernels.matmul(dscores.swapaxes(-1, -2), q_saved()),
            kernels.matmul(p.swapaxes(-1, -2), g),
        )

    to_q, to_k, to_v = joint(gradient, 3)
    return record(kernels.matmul(p, v.data), (q, to_q), (k, to_k), (v, to_v))
