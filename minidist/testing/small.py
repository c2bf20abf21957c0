"""Models and data that are small enough for a test, and awkward enough to find a mistake.

A prime number of examples divides evenly by nothing; one matrix is used three times; some parameters are frozen; a
branch is used by some examples only, and a layer by none. All is float64, so that a training on many ranks can be
compared with one process to the last digits. They live here and not in a test, so that the tests of several modes
share them, and ranks can import them.
"""

import numpy as np

from minidist.autograd import Tensor, ops
from minidist.models import MLP
from minidist.nn import Embedding, Linear, Module
from minidist.random import uniform

EXAMPLES = 23  # prime, so nothing divides evenly
CLASSES = 5


class Tied(Module):
    """One matrix that is used three times: to embed, in the middle, and as the head."""

    def __init__(self) -> None:
        self.embed = Embedding(CLASSES, 6, std=0.5)
        self.middle = Linear(6, 6)
        self.initialize(seed=3, dtype=np.float64)

    def forward(self, tokens: np.ndarray) -> Tensor:
        x = ops.sum(self.embed(tokens), axis=1)  # (n, width)
        x = ops.relu(self.middle(ops.relu(self.middle(x))))
        return x @ self.embed.weight.T


class Frozen(Module):
    """A frozen layer and a frozen bias beside trainable ones."""

    def __init__(self) -> None:
        self.layers = MLP([16, 8, 7, CLASSES], seed=4, dtype=np.float64).layers
        self.layers[1].weight.requires_grad = False
        self.layers[2].bias.requires_grad = False

    def forward(self, x: np.ndarray) -> Tensor:
        y = Tensor(x.reshape(len(x), -1))
        for layer in self.layers[:-1]:
            y = ops.relu(layer(y))
        return self.layers[-1](y)


class SometimesUnused(Module):
    """A branch that only some examples use: in some steps on some ranks, in others nowhere; and a layer without use."""

    def __init__(self) -> None:
        self.trunk = Linear(16, CLASSES)
        self.branch = Linear(16, CLASSES)
        self.never = Linear(16, CLASSES)
        self.initialize(seed=5, dtype=np.float64)

    def forward(self, x: np.ndarray) -> Tensor:
        flat = x.reshape(len(x), -1)
        y = self.trunk(Tensor(flat))
        chosen = flat[:, 0] > 0.85
        if chosen.any():
            y = y + self.branch(Tensor(flat)) * chosen[:, None].astype(np.float64)
        return y


def images() -> np.ndarray:
    """Give (EXAMPLES, 1, 4, 4) numbers from 0 to 1."""
    return uniform(1, "images", 0, 0, EXAMPLES * 16).reshape(EXAMPLES, 1, 4, 4)


def tokens() -> np.ndarray:
    """Give (EXAMPLES, 4) integers below CLASSES."""
    return (uniform(2, "tokens", 0, 0, EXAMPLES * 4) * CLASSES).astype(np.int64).reshape(EXAMPLES, 4)


def labels_of(name: str, inputs: np.ndarray) -> np.ndarray:
    """Give what a model of this name is to predict: a gpt the tokens themselves, others one class for each example."""
    return inputs if name == "gpt" else (np.arange(EXAMPLES) * 3) % CLASSES
