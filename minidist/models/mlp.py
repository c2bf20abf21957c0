"""A multilayer perceptron: matrix products with ReLU in between. The model to understand first.

Read next: `cnn.py`.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from minidist.autograd import Tensor, ops
from minidist.nn import Linear, Module


class MLP(Module):
    """Classify vectors: (n, ...) -> (n, sizes[-1]) logits.

    sizes: the width of the input, of each hidden layer, and of the output, e.g. [64, 128, 64, 10].
    """

    def __init__(self, sizes: list[int], seed: int = 0, dtype: Any = np.float32) -> None:
        self.layers = [Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes)]
        self.initialize(seed, dtype)

    def forward(self, images: np.ndarray) -> Tensor:
        x = Tensor(images.reshape(len(images), -1))  # (n, sizes[0])
        for layer in self.layers[:-1]:
            x = ops.relu(layer(x))
        return self.layers[-1](x)  # (n, classes)
