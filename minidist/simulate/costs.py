"""How long computing takes: from the floating-point operations counted here, or from what a profile has measured.

    a matrix product of weights (k, m) with rows (n, k)      2 n k m operations forward, and as many for each gradient
    attention over t positions of width w                    4 t^2 w forward, 8 t^2 w backward

Only matrix products and convolutions are counted: on large layers the rest hardly matters, on small ones a profile
knows better. An update takes as long as its vectors need to pass through memory.
Read next: `profile.py`, which measures.
"""

from collections.abc import Callable
from dataclasses import dataclass

from minidist.models import CNN, GPT, MLP
from minidist.nn import Module
from minidist.plan.cluster import Cluster
from minidist.plan.splits import numbers_after

GRADIENTS = 2  # of each product, one for its input and one for its weights


def operations(model: Module, piece: int) -> float:
    """Count what this rank's part of a piece takes forward, for one example."""
    if isinstance(model, MLP):
        return 2.0 * model.layers[piece].weight.size
    if isinstance(model, CNN):
        if piece == 2:
            return 2.0 * model.head.weight.size
        layer = (model.first, model.second)[piece]
        points = (
            numbers_after(model, piece) * (4 if piece else 1) / layer.weight.shape[0]
        )  # the second is pooled
        return 2.0 * layer.weight.size * points
    assert isinstance(model, GPT)
    if piece == 0:
        return 0.0  # looking up
    if piece > len(model.blocks):
        return 2.0 * model.time * model.tokens.weight.size
    block = model.blocks[piece - 1]
    matrices = sum(p.size for p in block.parameters() if p.ndim == 2)
    return 2.0 * model.time * matrices + 4.0 * model.time**2 * block.attention.out.weight.shape[0]


@dataclass(frozen=True)
class Costs:
    """Seconds of each kind of computation. piece, examples -> seconds; update: bytes of weights, state vectors.

    begin: what a step takes before its first layer: to pick the examples, and to forget the last step's gradients.
    """

    forward: Callable[[Module, int, int], float]
    backward: Callable[[Module, int, int], float]  # input and weights together
    update: Callable[[int, int], float]
    begin: float = 0.0

    def weights_part(self, model: Module, piece: int, examples: int) -> float:
        """Give the part of a backward that makes the gradients of the weights: half, or all where nobody asks more."""
        return self.backward(model, piece, examples) / (1 if piece == 0 else GRADIENTS)


def counted(cluster: Cluster) -> Costs:
    """Take times from operations and bytes."""

    def forward(model: Module, piece: int, examples: int) -> float:
        return operations(model, piece) * examples / cluster.flops

    def backward(model: Module, piece: int, examples: int) -> float:
        # Nobody asks for the gradient of the data.
        return forward(model, piece, examples) * (1 if piece == 0 else GRADIENTS)

    def update(nbytes: int, slots: int) -> float:
        return nbytes * (3 + 2 * slots) / cluster.memory  # reads all, writes the weights and the state

    return Costs(forward, backward, update)
