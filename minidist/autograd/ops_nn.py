"""What else neural networks are made of: losses, normalisation, lookup, attention.

Several of these could be composed from the operations before. They stand as one node where a fused kernel is
faster or more accurate, or where the composition would keep large arrays on the tape. Read next: `check.py`.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd.operands import operands
from minidist.autograd.ops_elementwise import multiply
from minidist.autograd.ops_linear import rows
from minidist.autograd.tape import direct, joint, keep, record, will_record
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
    shape = logits.shape
    if labels.shape != shape[:-1]:
        raise ValueError(
            f"cross_entropy needs one label for each example: {shape[:-1]} of them, got {labels.shape}"
        )
    labels = labels.reshape(-1)  # (n,)
    losses, sums, exponentials = kernels.cross_entropy(rows(logits.data), labels, will_record(logits))
    loss = kernels.sum(losses)
    loss.fill(loss.item() / count)

    def gradient(g: Array) -> Array:
        each = np.empty_like(losses)  # (n,)
        each.fill(g.item() / count)
        return kernels.cross_entropy_backward(exponentials, labels, sums, each).reshape(shape)

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


def dropout(
    x: Any,
    rate: float,
    seed: int,
    purpose: str,
    step: int,
    start: int = 0,
    stretches: Iterable[tuple[int, int]] | None = None,
) -> Tensor:
    """Set elements to 0 with probability `rate`, divide the others by 1 - rate (Srivastava et al. 2014).

    The mask is a function of (seed, purpose, step, element), not of the rank that draws it: x holds elements
    `start` to `start + x.size` of the tensor that one process would have. Where it is a piece along another dim than
    the first, its elements lie apart there, in `stretches` (start, stop): `nn.Placement(...).stretches()` gives them.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"dropout needs a rate from 0 to below 1, got {rate}")
    (x,) = operands(x)
    places = [(start, start + x.size)] if stretches is None else stretches
    chances = np.concatenate([np.empty(0), *(uniform(seed, purpose, step, *ends) for ends in places)])
    if chances.size != x.size:
        raise ValueError(f"dropout got stretches of {chances.size} elements for a tensor of shape {x.shape}")
    return multiply(x, (chances >= rate).reshape(x.shape) / (1 - rate))


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

    q, k, v (batch, heads, time, dim) -> (batch, heads, time, dim). The tape keeps these and one number for each
    query, never the (time, time) scores.
    """
    q, k, v = operands(q, k, v)
    if not (q.ndim == 4 and q.shape == k.shape == v.shape):
        raise ValueError(
            "causal_attention needs q, k, v of one shape (batch, heads, time, dim), "
            f"got {q.shape}, {k.shape}, {v.shape}"
        )
    q_saved, k_saved, v_saved = keep(q), keep(k), keep(v)
    y, log_sums = kernels.attention(q.data, k.data, v.data)

    def gradient(g: Array) -> tuple[Array, Array, Array]:
        return kernels.attention_backward(g, q_saved(), k_saved(), v_saved(), y, log_sums)

    to_q, to_k, to_v = joint(gradient, 3)
    return record(y, (q, to_q), (k, to_k), (v, to_v))


def causal_self_attention(qkv: Any, heads: int) -> Tensor:
    """Let each position look at itself and those before, where one product has made all queries, keys and values.

    qkv (batch, time, 3 * width) -> (batch, time, width). As `causal_attention` on pieces of qkv, but nothing is
    copied on the way there, and the gradient of qkv is written once, not added up from three.
    """
    (qkv,) = operands(qkv)
    batch, time, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    if qkv.shape[2] % (3 * heads):
        raise ValueError(
            f"causal_self_attention cuts the last dim into 3 pieces of {heads} heads; {qkv.shape[2]} is no multiple of "
            f"{3 * heads}"
        )

    def pieces(x: Array) -> list[Array]:
        x = x.reshape(batch, time, 3, heads, width // heads)
        return [x[:, :, i].swapaxes(1, 2) for i in range(3)]  # (batch, heads, time, dim) each

    qkv_saved = keep(qkv)
    y, log_sums = kernels.attention(*pieces(qkv.data))

    def gradient(g: Array) -> Array:
        g = g.reshape(batch, time, heads, width // heads).swapaxes(1, 2)
        dqkv = np.empty((batch, time, 3 * width), g.dtype)
        q, k, v = pieces(qkv_saved())
        kernels.attention_backward(g, q, k, v, y, log_sums, into=pieces(dqkv))
        return dqkv

    return record(y.swapaxes(1, 2).reshape(batch, time, width), (qkv, gradient))
