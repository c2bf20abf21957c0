"""A small convolutional net: two convolutions, one pooling, one linear layer (after LeCun et al. 1998, LeNet-5).

Read next: `gpt.py`.
"""

from typing import Any

import numpy as np

from minidist.autograd import Tensor, ops
from minidist.nn import Conv2d, Linear, Module, Piece


class CNN(Module):
    """Classify images: (n, channels, height, width) -> (n, classes) logits."""

    def __init__(
        self,
        image: tuple[int, int, int],  # channels, height, width
        classes: int,
        channels: tuple[int, int] = (16, 32),
        seed: int | None = 0,
        dtype: Any = np.float32,
    ) -> None:
        depth, height, width = image
        self.first = Conv2d(depth, channels[0], size=3, padding=1)
        self.second = Conv2d(channels[0], channels[1], size=3, padding=1)
        self.head = Linear(channels[1] * (height // 2) * (width // 2), classes)
        self.initialize(seed, dtype)

    def forward(self, images: np.ndarray) -> Tensor:
        return self.classify(self.middle(self.begin(images)))

    def pieces(self) -> list[Piece]:
        return [
            Piece(self.begin, (self.first,)),
            Piece(self.middle, (self.second,)),
            Piece(self.classify, (self.head,)),
        ]

    def begin(self, images: np.ndarray) -> Tensor:
        return ops.relu(self.first(Tensor(images)))  # (n, channels[0], height, width)

    def middle(self, x: Tensor) -> Tensor:
        return ops.max_pool2d(ops.relu(self.second(x)), 2)  # (n, channels[1], height / 2, width / 2)

    def classify(self, x: Tensor) -> Tensor:
        return self.head(x.reshape(len(x), -1))  # (n, classes)
