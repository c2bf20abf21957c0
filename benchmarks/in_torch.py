"""The models of the benchmark in PyTorch, written plainly, with the weights of ours.

`copy_weights` makes the comparison exact: both start from the same numbers, so the gradients of the first step can be
compared, too. PyTorch keeps the matrix of a linear layer as (out, in), minidist as (in, out).
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from minidist.bench.step import LR, Mlp, Work
from minidist.nn import Module


class Attention(nn.Module):
    """Causal self-attention with several heads, on PyTorch's own fused kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)  # (batch, heads, time, dim)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """One layer of the transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Decoder-only transformer with tied weights."""

    def __init__(self, vocabulary: int, time: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(time, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)  # (batch, time, vocabulary)


def build(work: Work) -> nn.Module:
    """Build the model of a row, with the weights that ours starts from."""
    if isinstance(work, Mlp):
        layers: list[nn.Module] = []
        for fan_in, fan_out in zip(work.sizes, work.sizes[1:], strict=False):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        model: nn.Module = nn.Sequential(*layers[:-1])
    else:
        model = GPT(work.vocabulary, work.time, work.layers, work.width, work.heads)
    copy_weights(work.model(), model)
    return model


def pairs(ours: Module, theirs: nn.Module) -> list[tuple]:
    """Match the parameters of two models: (ours, theirs, whether one is the other transposed), in order of use."""
    matched = []
    modules = dict(theirs.named_modules())
    own = [parameter for _, parameter in ours.named_parameters()]
    for (name, parameter), mine in zip(theirs.named_parameters(), own, strict=True):
        layer = modules[name.rpartition(".")[0]]
        matched.append((mine, parameter, isinstance(layer, nn.Linear) and parameter.ndim == 2))
    return matched


@torch.no_grad()
def copy_weights(ours: Module, theirs: nn.Module) -> None:
    """Give a PyTorch model the weights of one of ours."""
    for mine, parameter, transposed in pairs(ours, theirs):
        data = torch.from_numpy(mine.data.copy())
        parameter.copy_(data.T if transposed else data)


def loss_of(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over all targets."""
    outputs = model(inputs)
    return functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())


def step_of(
    work: Work, model: nn.Module, share: slice = slice(None), compiled: bool = False
) -> Callable[[], float]:
    """Return the function that makes one training step of `model` on a share of the batch."""
    inputs, labels = (torch.from_numpy(array[share].copy()) for array in work.data())
    if isinstance(work, Mlp):
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=LR["sgd"])
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR["adamw"], weight_decay=0.01, fused=True)
    loss_function = torch.compile(loss_of) if compiled else loss_of

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_function(model, inputs, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def largest_difference(work: Work) -> float:
    """Return the largest difference between our gradients and PyTorch's, relative to the largest gradient of each."""
    from minidist.bench.step import mean_loss
    from minidist.nn import flatten

    inputs, labels = work.data()
    ours, theirs = work.model(), build(work)
    flatten(ours)
    mean_loss(ours(inputs), labels, labels.size).backward()
    loss_of(theirs, torch.from_numpy(inputs.copy()), torch.from_numpy(labels.copy())).backward()
    worst = 0.0
    for mine, parameter, transposed in pairs(ours, theirs):
        grad = parameter.grad.numpy()
        grad = grad.T if transposed else grad
        worst = max(worst, float(abs(mine.grad - grad).max() / abs(grad).max()))
    return worst
