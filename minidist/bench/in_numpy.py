"""The fused operations in NumPy written well: the opponents that the kernels have to beat.

Well means: no temporary array that could be avoided, in place wherever possible, nothing computed twice. `reference/`
says the same with fewer words and more memory; it is there to be read, this to be fast.
"""

import math

import numpy as np

Array = np.ndarray
SLOPE, CUBIC = math.sqrt(2 / math.pi), 0.044715


def cross_entropy(logits: Array, labels: Array, grad_losses: Array) -> tuple[Array, Array]:
    """Losses (n,) and the gradient of the logits (n, c), forward and backward at once: one exp serves both."""
    rows = np.arange(len(labels))
    p = logits - logits.max(axis=1, keepdims=True)  # (n, c)
    picked = p[rows, labels]
    np.exp(p, out=p)
    total = p.sum(axis=1, keepdims=True)
    losses = np.log(total[:, 0])
    losses -= picked
    p /= total
    p[rows, labels] -= 1
    p *= grad_losses[:, None]
    return losses, p


def layer_norm(grad: Array, x: Array, gain: Array, bias: Array) -> tuple[Array, Array, Array, Array]:
    """y and dx (n, d), dgain and dbias (d,), forward and backward at once."""
    d = x.shape[1]
    normed = x - x.mean(axis=1, keepdims=True)
    rstd = 1 / np.sqrt(np.einsum("nd,nd->n", normed, normed) / d + 1e-5)[:, None]
    normed *= rstd
    y = normed * gain
    y += bias
    dgain = np.einsum("nd,nd->d", grad, normed)
    dx = grad * gain
    along_normed = np.einsum("nd,nd->n", dx, normed)[:, None] / d
    dx -= dx.mean(axis=1, keepdims=True)
    normed *= along_normed
    dx -= normed
    dx *= rstd
    return y, dx, dgain, grad.sum(axis=0)


def gelu(grad: Array, x: Array) -> tuple[Array, Array]:
    """y and dx, forward and backward at once: one tanh serves both."""
    square = x * x
    t = square * (SLOPE * CUBIC)
    t += SLOPE
    t *= x
    np.tanh(t, out=t)
    gate = t + 1  # twice the gate
    y = x * gate
    y *= 0.5
    dx = square
    dx *= 3 * SLOPE * CUBIC
    dx += SLOPE
    dx *= x
    t *= t
    np.subtract(1, t, out=t)
    dx *= t
    dx += gate
    dx *= grad
    dx *= 0.5
    return y, dx


def relu(grad: Array, x: Array) -> tuple[Array, Array]:
    """y and dx, forward and backward."""
    y = np.maximum(x, 0)
    return y, grad * (y > 0)


def softmax(x: Array) -> Array:
    """Normalise exp(x) along the last dim."""
    y = x - x.max(axis=-1, keepdims=True)
    np.exp(y, out=y)
    y /= y.sum(axis=-1, keepdims=True)
    return y


def causal_attention(q: Array, k: Array, v: Array, grad: Array) -> tuple[Array, Array, Array, Array]:
    """Outputs and the gradients of q, k, v: each (batch, heads, time, dim), forward and backward at once."""
    time, dim = q.shape[-2:]
    scale = 1 / math.sqrt(dim)
    scores = q @ k.swapaxes(-1, -2)  # (batch, heads, time, time)
    scores *= scale
    scores += np.triu(np.full((time, time), -np.inf, q.dtype), 1)  # nobody looks ahead
    scores -= scores.max(axis=-1, keepdims=True)
    p = np.exp(scores, out=scores)
    p /= p.sum(axis=-1, keepdims=True)
    y = p @ v
    dv = p.swapaxes(-1, -2) @ grad
    dscores = grad @ v.swapaxes(-1, -2)
    dscores -= np.einsum("bhqk,bhqk->bhq", dscores, p)[..., None]
    dscores *= p
    dscores *= scale
    return y, dscores @ k, dscores.swapaxes(-1, -2) @ q, dv


def adamw(w: Array, g: Array, m: Array, v: Array, spare: Array, step: int, lr: float, decay: float) -> None:
    """AdamW on flat vectors, in place, with betas 0.9 and 0.999; `spare` is scratch memory of the same size."""
    m *= 0.9
    np.multiply(g, 0.1, out=spare)
    m += spare
    v *= 0.999
    np.multiply(g, g, out=spare)
    spare *= 0.001
    v += spare
    np.sqrt(v, out=spare)
    spare *= 1 / math.sqrt(1 - 0.999**step)
    spare += 1e-8
    np.divide(m, spare, out=spare)
    spare *= lr / (1 - 0.9**step)
    w *= 1 - lr * decay
    w -= spare


def sgd(w: Array, g: Array, momentum_buffer: Array, spare: Array, lr: float, momentum: float) -> None:
    """Momentum on flat vectors, in place; `spare` is scratch memory of the same size."""
    momentum_buffer *= momentum
    momentum_buffer += g
    np.multiply(momentum_buffer, lr, out=spare)
    w -= spare
