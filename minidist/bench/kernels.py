"""Suite "kernels": each kernel beside NumPy, on the shapes that the models of the tutorials have.

A layer needs three matrix products, which differ in what is transposed:

    forward             x @ w       (batch, in) @ (in, out)
    input gradient      g @ w.T     (batch, out) @ (out, in)
    weight gradient     x.T @ g     (in, batch) @ (batch, out)

The opponents of the fused kernels stand in `in_numpy.py`. Arithmetic is counted as the formulas have it, an exp or a
division as one operation. Read next: `step.py`.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd import Tensor, ops
from minidist.bench import in_numpy
from minidist.bench.measure import Case

# (batch, in, out) of the layers of MLPs, of a convolution as a matrix product, and of a GPT on 16 x 64 tokens
LAYERS: tuple[tuple[int, int, int], ...] = (
    *((32, 64, 64), (32, 64, 10)),
    *((64, 784, 256), (64, 256, 128), (64, 128, 10)),
    *(
        (32, 784, 128),
        (32, 128, 127),
        (32, 127, 126),
        (32, 126, 125),
        (32, 125, 124),
        (32, 124, 123),
        (32, 123, 10),
    ),
    *((128, 784, 1024), (128, 1024, 1024), (128, 1024, 10)),
    *((6272, 9, 16), (6272, 144, 32)),
    *((1024, 128, 384), (1024, 128, 128), (1024, 128, 512), (1024, 512, 128), (1024, 128, 96)),
)
SQUARES: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048)
# (n, d) of logits and activations
ROWS: tuple[tuple[int, int], ...] = ((64, 10), (1024, 96), (1024, 128), (1024, 512))
# to reduce along either dim
PLANES: tuple[tuple[int, int], ...] = ((32, 64), (1024, 128), (128, 1024), (1024, 1024))
# (batch, heads, time, dim)
ATTENTIONS: tuple[tuple[int, int, int, int], ...] = ((16, 4, 64, 32), (4, 4, 256, 32), (1, 4, 1024, 64))
VECTORS: tuple[int, ...] = (4_810, 235_146, 813_824)  # parameters of the models of the suite "step"


def random(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Draw normal numbers, the same ones every time."""
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def cases(quick: bool) -> Iterator[Case]:
    """Give all comparisons, each with arrays of its own; a few of each kind where it must be quick."""
    every = slice(None, None, 4 if quick else 1)
    squares = SQUARES[:-2] if quick else SQUARES
    for m, k, n in LAYERS[every]:
        yield from products(m, k, n, "float32")
        yield layer(m, k, n)
    for n in squares:
        yield from products(n, n, n, "float32")
    for n in squares[2:]:
        yield from products(n, n, n, "float64")
    for rows, d in ROWS[every]:
        yield from fused(rows, d)
    for rows, d in PLANES[every]:
        yield from reductions(rows, d)
    for shape in ATTENTIONS[every]:
        yield attention(*shape)
    for n in VECTORS[every]:
        yield from updates(n)


def products(m: int, k: int, n: int, dtype: str) -> Iterator[Case]:
    """Give the three products of a layer (m, k) -> (m, n)."""
    x, w, g = random(m, k, dtype=dtype), random(k, n, dtype=dtype), random(m, n, dtype=dtype)
    yield product("x @ w", x, w)
    yield product("g @ w.T", g, w.T)
    yield product("x.T @ g", x.T, g)


def product(name: str, a: np.ndarray, b: np.ndarray) -> Case:
    """Give one matrix product, written into memory that is there."""
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    return Case(
        f"matmul {name}",
        (*a.shape, b.shape[1]),
        a.dtype.name,
        lambda: kernels.matmul(a, b, out=out),
        {"np.matmul": lambda: np.matmul(a, b, out=out)},
        2.0 * a.size * b.shape[1],
        out.itemsize * (a.size + b.size + out.size),
    )


def layer(m: int, k: int, n: int) -> Case:
    """Give the forward pass of a hidden layer at once: product, bias and ReLU."""
    x, w, bias = random(m, k), random(k, n), random(n)
    out, theirs = np.empty((m, n), np.float32), np.empty((m, n), np.float32)

    def in_three_calls() -> None:
        np.matmul(x, w, out=theirs)
        np.add(theirs, bias, out=theirs)
        np.maximum(theirs, 0, out=theirs)

    flops, nbytes = 2.0 * m * k * n + 2 * m * n, 4.0 * (m * k + k * n + n + m * n)
    ours = partial(kernels.linear, x, w, bias, "relu", out)
    return Case("linear with relu", (m, k, n), "float32", ours, {"NumPy": in_three_calls}, flops, nbytes)


def fused(n: int, d: int) -> Iterator[Case]:
    """Give what is done row by row, forward and backward, on (n, d)."""
    x, grad, gain, bias = random(n, d), random(n, d)[::-1].copy(), random(d), random(d)
    labels, grad_losses = np.arange(n) % d, np.full(n, 1 / n, np.float32)

    def cross_entropy() -> None:
        _, sums, exponentials = kernels.cross_entropy(x, labels)
        kernels.cross_entropy_backward(exponentials, labels, sums, grad_losses)

    def layer_norm() -> None:
        _, mean, rstd = kernels.layer_norm(x, gain, bias, 1e-5)
        kernels.layer_norm_backward(grad, x, gain, mean, rstd)

    def gelu() -> None:
        kernels.gelu(x)
        kernels.gelu_backward(grad, x)

    def relu() -> None:
        kernels.relu_backward(grad, kernels.relu(x))

    def case(
        name: str, ours: Callable[[], object], peer: Callable[[], object], flops: int, arrays: int
    ) -> Case:
        # flops: for each element. arrays: so many of n x d numbers are read or written
        return Case(name, (n, d), "float32", ours, {"NumPy": peer}, flops * n * d, 4.0 * arrays * n * d)

    yield case("cross_entropy", cross_entropy, lambda: in_numpy.cross_entropy(x, labels, grad_losses), 7, 3)
    yield case("layer_norm", layer_norm, lambda: in_numpy.layer_norm(grad, x, gain, bias), 18, 5)
    yield case("gelu", gelu, lambda: in_numpy.gelu(grad, x), 24, 5)
    yield case("relu", relu, lambda: in_numpy.relu(grad, x), 2, 5)
    yield case("softmax", lambda: kernels.softmax(x), lambda: in_numpy.softmax(x), 5, 2)


def reductions(n: int, d: int) -> Iterator[Case]:
    """Give what makes one number of many, along either dim of (n, d) and along both."""
    x = random(n, d)
    for name, ours, peer in (
        ("sum", kernels.sum, np.sum),
        ("max", kernels.max, np.max),
        ("argmax", kernels.argmax, np.argmax),
    ):
        for axis in (0, 1, None):
            yield Case(
                f"{name}, axis {axis}",
                (n, d),
                "float32",
                partial(ours, x, axis),
                {"NumPy": partial(peer, x, axis)},
                n * d,
                4.0 * n * d,
            )


def attention(batch: int, heads: int, time: int, dim: int) -> Case:
    """Give causal attention, forward and backward, as the tape runs it."""
    shape = (batch, heads, time, dim)
    q, k, v, grad = random(4, *shape)

    def ours() -> None:
        inputs = [Tensor(array, requires_grad=True) for array in (q, k, v)]
        ops.causal_attention(*inputs).backward(grad)

    # 2 products forward and 4 backward, of which the half beneath the diagonal is needed, at 2 operations a term
    flops = 6.0 * batch * heads * time * (time + 1) * dim
    peers = {"NumPy": lambda: in_numpy.causal_attention(q, k, v, grad)}
    return Case("causal_attention", shape, "float32", ours, peers, flops, 4.0 * 8 * q.size)


def updates(n: int) -> Iterator[Case]:
    """Give the update rules on vectors of n weights."""
    w, g, m, spare = random(n), random(n) * 1e-3, np.zeros(n, np.float32), np.empty(n, np.float32)
    v = np.full(n, 1e-6, np.float32)
    yield Case(
        "adamw",
        (n,),
        "float32",
        lambda: kernels.adamw(w, g, m, v, 10, 1e-4, 0.9, 0.999, 1e-8, 0.01, 1.0),
        {"NumPy": lambda: in_numpy.adamw(w, g, m, v, spare, 10, 1e-4, 0.01)},
        14.0 * n,
        4.0 * 7 * n,
    )
    yield Case(
        "sgd with momentum",
        (n,),
        "float32",
        lambda: kernels.sgd(w, g, m, 1e-4, 0.9, 0.0, 1.0),
        {"NumPy": lambda: in_numpy.sgd(w, g, m, spare, 1e-4, 0.9)},
        4.0 * n,
        4.0 * 5 * n,
    )
