"""Every kernel in plain NumPy: what the compiled ones compute, said in the fewest words.

These are the definitions. The compiled kernels have the same names and signatures and are tested against these;
where no C compiler was found, the engine runs on these. A reader who wants to know *what* reads this file; *why the
other is faster* stands in `matmul.h`, `reductions.h`, `elementwise.h`, `rows.h`,
`attention.h` and `optimizers.h`.

All kernels take float32 or float64 and answer in the same dtype. Inputs may be read-only and in any memory order.
A full reduction gives a 0-d array, so that a result is always an array.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minidist._kernels import checks

Axes = int | tuple[int, ...] | None
GELU_SLOPE = math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715
MAX_VECTORS = 1024  # that sum_into_all takes at once
MEETING, UNLIKE, SUMMED, COMPLETE = range(4)  # how far meet_and_sum went
GELU_SATURATES = 40.0  # from here on gelu(x) is x, and 0 below -40, to the last bit of float64


def matmul(a: Any, b: Any, out: np.ndarray | None = None, accumulate: bool = False) -> np.ndarray:
    """Multiply matrices: (..., m, k) @ (..., k, n) -> (..., m, n), leading dims broadcast.

    With `out` the result is written there; with `accumulate` it is added to what stands there.
    """
    a, b = checks.floats("matmul", a=a, b=b)
    shape = checks.product_shape(a, b)
    checks.needs_out("matmul", out, accumulate)
    if out is None:
        return np.matmul(a, b)
    checks.output("matmul", out, shape, a.dtype, {"a": a, "b": b})
    if accumulate:
        out += np.matmul(a, b)
    else:
        np.matmul(a, b, out=out)
    return out


def linear(
    x: Any,
    weight: Any,
    bias: np.ndarray | None = None,
    activation: str | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Compute activation(x @ weight + bias): (..., k) @ (k, n) + (n,) -> (..., n); activation: "relu", "gelu", None."""
    bend = (None, relu, gelu)[checks.activation(activation)]
    if bias is not None:
        checks.bias(x, weight, bias)
        checks.apart("linear", out, bias=bias)
    y = matmul(x, weight, out)
    if bias is not None:
        y += bias
    if bend is not None:
        y[...] = bend(y)
    return y


def threads(n: int | None = None) -> int:
    """Set how many threads a large product may use; return how many it was. NumPy's own library decides here: 1."""
    if n is not None:
        checks.threads(n)
    return 1


def sum(  # the kernels carry NumPy's names
    x: Any, axis: Axes = None, keepdims: bool = False, out: np.ndarray | None = None, accumulate: bool = False
) -> np.ndarray:
    """Sum over the axes, all of them by default; the sum of nothing is 0. `out`, `accumulate`: as in `matmul`."""
    (x,) = checks.floats("sum", x=x)
    over = checks.axes("sum", axis, x.ndim)
    checks.needs_out("sum", out, accumulate)
    result = np.asarray(x.sum(axis=over, keepdims=keepdims))
    if out is None:
        return result
    checks.output("sum", out, result.shape, x.dtype, {"x": x})
    out[...] = out + result if accumulate else result
    return out


def max(x: Any, axis: Axes = None, keepdims: bool = False) -> np.ndarray:
    """Find the largest element over the axes; nan where there is one. ValueError if there is no element."""
    (x,) = checks.floats("max", x=x)
    over = checks.axes("max", axis, x.ndim)
    checks.not_empty("max", x.shape, over)
    if x.size == 0:
        return np.empty(checks.reduced_shape(x.shape, over, keepdims), x.dtype)
    return np.asarray(x.max(axis=over, keepdims=keepdims))


def argmax(x: Any, axis: int | None = None) -> np.ndarray:
    """Find where the first largest element is (the first nan, if any), as int64; axis None: in flat C order."""
    (x,) = checks.floats("argmax", x=x)
    over = checks.axes("argmax", axis, x.ndim)
    checks.not_empty("argmax", x.shape, over)
    return np.asarray(x.argmax(axis=axis), np.int64)


def sum_of_squares(x: Any) -> float:
    """Sum the squares of all elements in float64: the squared norm of a gradient, say."""
    (x,) = checks.floats("sum_of_squares", x=x)
    return float(np.sum(np.square(x, dtype=np.float64)))


def log_sum_exp(x: Any, axis: int = -1, keepdims: bool = False) -> np.ndarray:
    """Compute log(sum(exp(x))) along one axis without overflow; of nothing, or of -inf alone, it is -inf."""
    (x,) = checks.floats("log_sum_exp", x=x)
    over = checks.axes("log_sum_exp", axis, x.ndim)
    if x.shape[over[0]] == 0:
        return np.full(checks.reduced_shape(x.shape, over, keepdims), -np.inf, x.dtype)
    top = x.max(axis=over, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        result = top + np.log(np.exp(x - top).sum(axis=over, keepdims=True))
    result = np.where(np.isinf(top), top, result)  # inf - inf would be nan
    return result if keepdims else result.squeeze(over)


def softmax(x: Any) -> np.ndarray:
    """Normalise exp(x) along the last dim; a row of -inf alone (nothing allowed) or with +inf gives nan."""
    (x,) = checks.floats("softmax", x=x)
    checks.last_dim("softmax", x)
    if x.size == 0:
        return np.empty(x.shape, x.dtype)
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_backward(grad: Any, y: Any) -> np.ndarray:
    """Turn the gradient of y = softmax(x) into that of x: y * (grad - sum(grad * y))."""
    grad, y = checks.floats("softmax_backward", grad=grad, y=y)
    checks.last_dim("softmax_backward", y)
    checks.shape("softmax_backward", "grad", grad, y.shape, "the shape of y")
    return y * (grad - (grad * y).sum(axis=-1, keepdims=True))


def cross_entropy(
    logits: Any, labels: Any, gradient: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Compute -log softmax(logits)[label] of each row: (n, c), (n,) -> losses (n,), sums (n,), exponentials (n, c).

    The exponentials and their sums are for backward; without `gradient` there are none. All is relative to the
    row's largest logit: beside logits of 1e8, float32 would lose the 0.69 that tells one class from two.
    """
    (logits,) = checks.floats("cross_entropy", logits=logits)
    n, c = checks.matrix("cross_entropy", "logits", logits)
    labels = checks.labels("cross_entropy", labels, n, c)
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = logits - logits.max(axis=1, initial=-np.inf)[:, None]  # (n, c)
        exponentials = np.exp(shifted)
        sums = exponentials.sum(axis=1)
        losses = np.log(sums) - shifted[np.arange(n), labels]
    return losses, sums.astype(np.float64), exponentials if gradient else None


def cross_entropy_backward(exponentials: Any, labels: Any, sums: Any, grad_losses: Any) -> np.ndarray:
    """Compute the gradient of the logits, (softmax(logits) - one_hot(labels)) * grad_losses[:, None]: (n, c)."""
    operation = "cross_entropy_backward"
    exponentials, grad_losses = checks.floats(operation, exponentials=exponentials, grad_losses=grad_losses)
    n, c = checks.matrix(operation, "exponentials", exponentials)
    labels = checks.labels(operation, labels, n, c)
    (sums,) = checks.floats(operation, sums=sums)
    checks.shape(operation, "sums", sums, (n,), "one per row of exponentials")
    checks.shape(operation, "grad_losses", grad_losses, (n,), "one per row of exponentials")
    result = exponentials / sums[:, None].astype(exponentials.dtype)
    result[np.arange(n), labels] -= 1
    result *= grad_losses[:, None]
    return result


def layer_norm(x: Any, gain: Any, bias: Any, eps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normalise each row to mean 0 and variance 1, then scale and shift (Ba et al. 2016, section 3).

    x (..., d), gain (d,), bias (d,) -> y (..., d), mean (...), rstd (...) = 1 / sqrt(variance + eps).
    """
    x, gain, bias = checks.floats("layer_norm", x=x, gain=gain, bias=bias)
    checks.last_dim("layer_norm", x)
    checks.shape("layer_norm", "gain", gain, x.shape[-1:], "the last dim of x")
    checks.shape("layer_norm", "bias", bias, x.shape[-1:], "the last dim of x")
    d = np.maximum(x.shape[-1], 1).astype(x.dtype)
    mean = x.sum(axis=-1) / d
    centred = x - mean[..., None]
    rstd = (1 / np.sqrt(np.square(centred).sum(axis=-1) / d + eps)).astype(x.dtype)
    return centred * rstd[..., None] * gain + bias, np.asarray(mean), np.asarray(rstd)


def layer_norm_backward(
    grad: Any, x: Any, gain: Any, mean: Any, rstd: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the gradients of `layer_norm`: dx (..., d), dgain (d,), dbias (d,)."""
    grad, x, gain, mean, rstd = checks.floats(
        "layer_norm_backward", grad=grad, x=x, gain=gain, mean=mean, rstd=rstd
    )
    checks.last_dim("layer_norm_backward", x)
    checks.shape("layer_norm_backward", "grad", grad, x.shape, "the shape of x")
    checks.shape("layer_norm_backward", "gain", gain, x.shape[-1:], "the last dim of x")
    checks.shape("layer_norm_backward", "mean", mean, x.shape[:-1], "one per row of x")
    checks.shape("layer_norm_backward", "rstd", rstd, x.shape[:-1], "one per row of x")
    d = np.maximum(x.shape[-1], 1).astype(x.dtype)
    normed = (x - mean[..., None]) * rstd[..., None]
    dnormed = grad * gain
    # Mean and variance depend on the whole row: take away the parts of the gradient along 1 and along `normed`.
    along_one = dnormed.sum(axis=-1, keepdims=True) / d
    along_normed = (dnormed * normed).sum(axis=-1, keepdims=True) / d
    dx = (dnormed - along_one - normed * along_normed) * rstd[..., None]
    rows = tuple(range(x.ndim - 1))
    return dx, (grad * normed).sum(axis=rows), np.asarray(grad.sum(axis=rows))


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


def _gelu_gate(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x kept in the range where gelu is curved, and (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)) there."""
    curved = np.clip(x, -GELU_SATURATES, GELU_SATURATES)
    u = GELU_SLOPE * (curved + GELU_CUBIC * curved * curved * curved)
    with np.errstate(over="ignore"):
        return curved, 1 / (1 + np.exp(-2 * u))


def gelu(x: Any) -> np.ndarray:
    """Apply GELU in the tanh form of GPT-2: x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2.

    Hendrycks and Gimpel 2016, section 2. (1 + tanh(u)) / 2 is computed as 1 / (1 + exp(-2u)), which does not cancel.
    """
    (x,) = checks.floats("gelu", x=x)
    curved, gate = _gelu_gate(x)
    return np.asarray(np.where(x > 0, x, curved) * gate)


def gelu_backward(grad: Any, x: Any) -> np.ndarray:
    """Turn the gradient of gelu(x) into that of x."""
    grad, x = checks.floats("gelu_backward", grad=grad, x=x)
    checks.shape("gelu_backward", "grad", grad, x.shape, "the shape of x")
    curved, gate = _gelu_gate(x)
    slope = 2 * GELU_SLOPE * (1 + 3 * GELU_CUBIC * np.square(curved))
    return np.asarray(grad * (gate + curved * slope * gate * (1 - gate)))


def relu(x: Any) -> np.ndarray:
    """Compute max(x, 0); nan stays nan."""
    (x,) = checks.floats("relu", x=x)
    return np.asarray(np.maximum(x, 0))


def relu_backward(grad: Any, y: Any) -> np.ndarray:
    """Pass the gradient on where y = relu(x) is positive, and 0 elsewhere."""
    grad, y = checks.floats("relu_backward", grad=grad, y=y)
    checks.shape("relu_backward", "grad", grad, y.shape, "the shape of y")
    return np.where(y > 0, grad, np.zeros((), grad.dtype))


def sgd(
    weights: Any,
    gradients: Any,
    momentum_buffer: Any,
    lr: float,
    momentum: float,
    weight_decay: float,
    scale: float,
) -> float:
    """Step down the gradient g = scale * gradients + weight_decay * weights, in place, on flat vectors.

    With a buffer: buffer = momentum * buffer + g, and the step is lr * buffer; with None it is lr * g.
    Returns the sum of squares of `gradients`, in float64: the norm that is reported costs no pass of its own.
    """
    if momentum_buffer is None:
        weights, gradients = checks.vectors("sgd", ("weights",), weights=weights, gradients=gradients)
        squares = sum_of_squares(gradients)
        weights -= lr * (scale * gradients + weight_decay * weights)
        return squares
    weights, gradients, momentum_buffer = checks.vectors(
        "sgd",
        ("weights", "momentum_buffer"),
        weights=weights,
        gradients=gradients,
        momentum_buffer=momentum_buffer,
    )
    squares = sum_of_squares(gradients)
    momentum_buffer *= momentum
    momentum_buffer += scale * gradients + weight_decay * weights
    weights -= lr * momentum_buffer
    return squares


def adamw(
    weights: Any,
    gradients: Any,
    m: Any,
    v: Any,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    scale: float,
) -> float:
    """Apply AdamW (Loshchilov and Hutter 2019, algorithm 2), in place, on flat vectors; `step` counts from 1.

    The gradient is scale * gradients. Decay is taken from the old weights, and eps is added after the bias
    correction: w -= lr * weight_decay * w + lr * (m / c1) / (sqrt(v / c2) + eps) with c = 1 - beta ** step.
    Returns the sum of squares of `gradients`, as sgd does.
    """
    weights, gradients, m, v = checks.vectors(
        "adamw", ("weights", "m", "v"), weights=weights, gradients=gradients, m=m, v=v
    )
    checks.first_step(step)
    g = scale * gradients
    m *= beta1
    m += (1 - beta1) * g
    v *= beta2
    v += (1 - beta2) * np.square(g)
    correction1, correction2 = 1 - beta1**step, 1 - beta2**step
    update = (lr / correction1) * m / (np.sqrt(v) / math.sqrt(correction2) + eps)
    weights -= lr * weight_decay * weights + update
    return sum_of_squares(gradients)


def sum_into_all(vectors: Sequence[Any]) -> None:
    """Replace each of several flat vectors by the sum of all, added in the order given: v[0] + v[1] + v[2] ...

    They lie in memory that several ranks see, one of each rank. They must not overlap, which is not checked.
    """
    vectors = checks.vectors_to_sum("sum_into_all", vectors, MAX_VECTORS)
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    for vector in vectors:
        vector[...] = total


def store_release(numbers: Any, i: int, value: int) -> None:
    """Write numbers[i] after everything that this rank has written before: whoever reads it sees that, too.

    numbers: int64 in memory that several ranks see. The plain store here is ordered so on x86 alone.
    """
    checks.numbers("store_release", numbers, i, True)
    numbers[i] = value


def has_reached(numbers: Any, i: int, value: int, looks: int = 1) -> bool:
    """Look, at most so many times, whether numbers[i] >= value; if it is, what was written before it is seen, too.

    See store_release. A look takes some hundredths of a microsecond, so a few hundred bridge the moment in which the
    other rank is just about to come.
    """
    checks.numbers("has_reached", numbers, i, False)
    return any(numbers[i] >= value for _ in range(looks))


def address_of(x: np.ndarray) -> int:
    """Tell where the first number of an array stands in memory."""
    return x.__array_interface__["data"][0]


def meet_and_sum(lines: Any, rank: int, number: int, told: Any, parts: Any, looks: int) -> int:
    """Do what ranks that share memory do in an all-reduce, in one call, as far as it goes without a long wait.

    lines: int64 (ranks, at least 2 + facts), for each rank the number to which it is ready, that to which it is done,
    and then what it is about to do; told: that of this rank, int64 (facts,). parts: (ranks, n), this rank's piece of
    each rank's vector, replaced by the sum. Returns how far it went: MEETING: not all ranks have come; UNLIKE: they
    have, and want to do something else; SUMMED: not all ranks have summed their pieces; COMPLETE.
    """
    checks.meeting("meet_and_sum", lines, rank, told, parts, MAX_VECTORS)
    lines[rank, 2 : 2 + len(told)] = told
    store_release(lines[rank], 0, number)
    if not all(has_reached(line, 0, number, looks) for line in lines):
        return MEETING
    if (lines[:, 2 : 2 + len(told)] != told).any():
        return UNLIKE
    sum_into_all(parts)
    store_release(lines[rank], 1, number)
    return COMPLETE if all(has_reached(line, 1, number, looks) for line in lines) else SUMMED


def sum_staged(
    lines: Any, rank: int, number: int, told: Any, scratch: Any, x: Any, out: Any, step: int, looks: int
) -> int:
    """Sum all ranks' x into their out through a scratch that they share, as far as it goes without a long wait.

    lines, told: see meet_and_sum; only the first number of a line is used, and every meeting has a number of its own:
    number, number + 1 ... scratch: (ranks, 2 blocks), a row for each rank. x, out: flat vectors, the same or apart.
    step: 0 at first. Returns the step whose meeting is not over yet: call again from the next one when it is; the
    number of blocks + 2 if all is done, and -1 if other ranks were told something else: then nothing is written.
    """
    checks.staging("sum_staged", lines, rank, told, scratch, x, out, step, MAX_VECTORS)
    ranks, length = len(scratch), scratch.shape[1] // 2
    blocks, cache_line = -(-x.size // length), 64 // x.itemsize

    def pieces(t: int) -> list[tuple[slice, slice]]:
        """Give for each rank where its piece of block t lies in the vector, and where in a row of the scratch."""
        start, found = t * length, []
        n = min(length, x.size - start)
        each = -(-n // ranks)
        share = -(-each // cache_line) * cache_line  # ranks write to different cache lines
        for r in range(ranks):
            begin, end = min(r * share, n), min((r + 1) * share, n)
            place = t % 2 * length
            found.append((slice(start + begin, start + end), slice(place + begin, place + end)))
        return found

    if step == 0:
        lines[rank, 2 : 2 + len(told)] = told
    others = [r for r in range(ranks) if r != rank]
    for t in range(step, blocks + 2):
        if t == 1 and (lines[:, 2 : 2 + len(told)] != told).any():
            return -1
        if t >= 2:
            for r in others:
                here, there = pieces(t - 2)[r]
                out[here] = scratch[rank, there]
        if 1 <= t <= blocks:
            here, there = pieces(t - 1)[rank]
            out[here] = x[here]
            sum_into_all([out[here] if r == rank else scratch[r, there] for r in range(ranks)])
        if t < blocks:
            for r in others:
                here, there = pieces(t)[r]
                scratch[rank, there] = x[here]
        store_release(lines[rank], 0, number + t)
        if not all(has_reached(line, 0, number + t, looks) for line in lines):
            return t
    return blocks + 2
