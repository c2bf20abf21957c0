"""A multilayer perceptron: matrix products with ReLU in between. The model to understand first.

Read next: `cnn.py`.
"""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from minidist.autograd import Tensor
from minidist.nn import Linear, Module, Piece


class MLP(Module):
    """Classify vectors: (n, ...) -> (n, sizes[-1]) logits.

    sizes: the width of the input, of each hidden layer, and of the output, e.g. [64, 128, 64, 10].
    """

    def __init__(self, sizes: list[int], seed: int | None = 0, dtype: Any = np.float32) -> None:
        self.layers = [Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes)]
        self.initialize(seed, dtype)

    def forward(self, images: np.ndarray) -> Tensor:
        x: Any = images
        for number in range(len(self.layers)):
            x = self.apply(number, x)
        return x  # (n, classes)

    def pieces(self) -> list[Piece]:
        return [Piece(partial(self.apply, number), (layer,)) for number, layer in enumerate(self.layers)]

    def apply(self, number: int, x: Any) -> Tensor:
        """Apply one layer, with the ReLU behind it if it is not the last."""
        if number == 0:
            x = Tensor(x.reshape(len(x), -1))  # (n, sizes[0])
        last = number == len(self.layers) - 1
        return self.layers[number](x, None if last else "relu")  # (n, sizes[number + 1])
