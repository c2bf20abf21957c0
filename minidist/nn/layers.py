"""Layers: what a model is built of. Each declares its weights and calls one or two operations.

The operations and their gradients are in `minidist/autograd/`. Read next: `minidist/models/mlp.py`.
"""

import math

import numpy as np

from minidist.autograd import Tensor, ops
from minidist.nn.module import Module, Weight


class Linear(Module):
    """Multiply by a matrix and add a bias: (..., fan_in) -> (..., fan_out).

    std: of the normal distribution the weights are drawn from; by default sqrt(2 / fan_in), which keeps the size of
    activations through ReLU layers (He et al. 2015, section 2.2).
    """

    def __init__(self, fan_in: int, fan_out: int, std: float | None = None) -> None:
        self.weight = Weight(fan_in, fan_out, std=math.sqrt(2 / fan_in) if std is None else std)
        self.bias = Weight(fan_out)

    def forward(self, x: Tensor, activation: str | None = None) -> Tensor:
        return ops.linear(x, self.weight, self.bias, activation)  # (..., fan_out)


class Conv2d(Module):
    """Slide square filters over images: (n, channels_in, h, w) -> (n, channels_out, h', w')."""

    def __init__(
        self, channels_in: int, channels_out: int, size: int, stride: int = 1, padding: int = 0
    ) -> None:
        fan_in = channels_in * size * size
        self.weight = Weight(channels_out, channels_in, size, size, std=math.sqrt(2 / fan_in))
        self.bias = Weight(channels_out)
        self.stride = stride
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        return ops.conv2d(x, self.weight, self.bias, self.stride, self.padding)


class Embedding(Module):
    """Look up a row for each index: (...) integers -> (..., width)."""

    def __init__(self, rows: int, width: int, std: float = 0.02) -> None:
        self.weight = Weight(rows, width, std=std)

    def forward(self, indices: np.ndarray) -> Tensor:
        return ops.embedding(self.weight, indices)  # (..., width)


class LayerNorm(Module):
    """Shift and scale each vector to mean 0 and variance 1, then by learned gain and bias (Ba et al. 2016)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        self.gain = Weight(width, mean=1.0)
        self.bias = Weight(width)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return ops.layer_norm(x, self.gain, self.bias, self.eps)  # as x


class CausalSelfAttention(Module):
    """Let each position look at itself and at those before it, through several heads (Vaswani et al. 2017, 3.2)."""

    def __init__(self, width: int, heads: int, std: float, std_out: float) -> None:
        if width % heads:
            raise ValueError(f"width {width} cannot be shared by {heads} heads; take a multiple of {heads}")
        self.heads = heads
        self.queries_keys_values = Linear(width, 3 * width, std)
        self.out = Linear(width, width, std_out)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.queries_keys_values(x)  # (batch, time, 3 * width)
        return self.out(ops.causal_self_attention(qkv, self.heads))  # (batch, time, width)
