"""How long computing takes: from the floating-point operations that are counted, or from what a profile has measured.

Only matrix products and convolutions are counted (`minidist/plan/operations.py`). On large layers the rest hardly
matters, on small ones a profile knows better. An update takes as long as its vectors need to pass through memory.
Read next: `profile.py`, which measures.
"""

from collections.abc import Callable
from dataclasses import dataclass

from minidist.nn import Module
from minidist.plan.cluster import Cluster
from minidist.plan.operations import operations

GRADIENTS = 2  # of each product, one for its input and one for its weights


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
