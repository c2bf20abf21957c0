"""Causal attention, with all scores at once; the fast one, which never has them: `../attention.h`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minidist._kernels import checks
from minidist._kernels.reference.reductions import log_sum_exp


def attention(q: Any, k: Any, v: Any) -> tuple[np.ndarray, np.ndarray]:
    """Let each position look at itself and at those before it: softmax(q k^T / sqrt(dim)) v, with a causal mask.

    q, k, v (batch, heads, time, dim) -> out (batch, heads, time, dim), log_sum_exp (batch, heads, time) of the scores
    (Vaswani et al. 2017, section 3.2.1). `out` lies in memory as (batch, time, heads, dim), so that joining the heads
    of a position afterwards copies nothing. This twin keeps all (time, time) scores of a head; the compiled one none.
    """
    q, k, v = _heads("attention", q=q, k=k, v=v)
    scores = _scores(q, k)
    log_sums = log_sum_exp(scores)
    out = np.empty(np.array(q.shape)[[0, 2, 1, 3]], q.dtype).transpose(0, 2, 1, 3)
    np.matmul(np.exp(scores - log_sums[..., None]), v, out=out)
    return out, log_sums


def attention_backward(
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    log_sum_exp: Any,
    into: Sequence[np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the gradients of q, k and v; `into` is memory for the three, pieces of one array perhaps."""
    operation = "attention_backward"
    grad, q, k, v, out = _heads(operation, grad=grad, q=q, k=k, v=v, out=out)
    grad, log_sum_exp = checks.floats(operation, grad=grad, log_sum_exp=log_sum_exp)
    checks.shape(operation, "log_sum_exp", log_sum_exp, q.shape[:3], "one for each row of q")
    if into is None:
        into = np.empty(q.shape, q.dtype), np.empty(q.shape, q.dtype), np.empty(q.shape, q.dtype)
    inputs = {f"input {i}": x for i, x in enumerate((grad, q, k, v, out, log_sum_exp))}
    for memory in into:
        checks.output(operation, memory, q.shape, q.dtype, inputs)
    dq, dk, dv = into
    p = np.exp(_scores(q, k) - log_sum_exp[..., None])  # (batch, heads, time, time)
    along = (grad * out).sum(axis=-1, keepdims=True)  # the row sums of dp * p, without dp
    dscores = p * (np.matmul(grad, v.swapaxes(-1, -2)) - along) / _root(q)
    dq[...] = np.matmul(dscores, k)
    dk[...] = np.matmul(dscores.swapaxes(-1, -2), q)
    dv[...] = np.matmul(p.swapaxes(-1, -2), grad)
    return dq, dk, dv


def _heads(operation: str, **arrays: Any) -> list[np.ndarray]:
    """Return arrays of one dtype and one shape (batch, heads, time, dim)."""
    checked = checks.floats(operation, **arrays)
    for name, x in zip(arrays, checked, strict=True):
        checks.heads(operation, name, x, checked[0].shape)
    return checked


def _scores(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return q k^T / sqrt(dim), with -inf where a query would look ahead: (batch, heads, time, time)."""
    time = q.shape[2]
    future = np.triu(np.full((time, time), -np.inf, q.dtype), 1)
    return np.matmul(q, k.swapaxes(-1, -2)) / _root(q) + future


def _root(q: np.ndarray) -> Any:
    return np.sqrt(np.maximum(q.shape[3], 1)).astype(q.dtype)
