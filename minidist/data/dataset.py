"""What a data set is once it has been read: four arrays and a few words about them.

Every reader of this room (`digits.py`, `mnist.py`, `text.py`) ends in a `Dataset`, and a training program
needs to know nothing else.
Read next: `digits.py`, the shortest reader; then `loader.py`, which says who reads which rows.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Outline:
    """What a model must know of a data set to be declared."""

    input_shape: tuple[int, ...]  # of one example: (channels, height, width) or (time,)
    classes: int


@dataclass(frozen=True)
class Dataset:
    """Hold a training part and a test part, ready to be cut into batches.

    Images: inputs are float32 in [0, 1] of shape (n, channels, height, width), labels int64 of shape (n,).
    Text: inputs are tokens, int64 of shape (n, time), and labels the token after each, of the same shape.
    """

    name: str
    train_inputs: np.ndarray
    train_labels: np.ndarray
    test_inputs: np.ndarray
    test_labels: np.ndarray
    classes: int  # labels are 0 to classes - 1
    source: str  # one line: what the data are and where they come from
    sha256: str  # of the data as they were stored: ranks compare it, since they may run on several machines

    @property
    def is_text(self) -> bool:
        """Tell whether the inputs are tokens rather than images."""
        return self.train_inputs.dtype.kind == "i"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Give the shape of one example: (channels, height, width) or (time,)."""
        return self.train_inputs.shape[1:]
