"""A small convolutional net: two convolutions, one pooling, one linear layer (after LeCun et al. 1998, LeNet-5).

Read next: `gpt.py`.
"""

from typing import Any

import numpy as np

from minidist.autograd import Tensor, ops
from minidist.nn import Conv2d, Linear, Module


class CNN(Module):
    """Classify images: (n, channels, height, width) -> (n, classes) logits."""

    def __init__(
        self,
        image: tuple[int, int, int],  # channels, height, width
        classes: int,
        channels: tuple[int, int] = (16, 32),
        seed: int = 0,
        dtype: Any = np.float32,
    ) -> None:
        depth, height, width = image
        self.first = Conv2d(depth, channels[0], size=3, padding=1)
        self.second = Conv2d(channels[0], channels[1], size=3, padding=1)
        self.head = Linear(channels[1] * (height // 2) * (width // 2), classes)
        self.initialize(seed, dtype)

    def forward(self, images: np.ndarray) -> Tensor:
        x = ops.relu(self.first(Tensor(images)))  # (n, channels[0], height, width)
        x = ops.relu(self.second(x))  # (n, channels[1], height, width)
        x = ops.max_pool2d(x, 2)  # (n, channels[1], height / 2, width / 2)
        return self.head(x.reshape(len(images), -1))  # (n, classes)
