"""What works on each row of a matrix: softmax, cross entropy, layer norm; the fast ones: `../rows.h`."""

from typing import Any

import numpy as np

from minidist._kernels import checks


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
