"""What is changed while a step is checked, for all ranks alike: how weights are drawn, and who hears of losses.

Weights that would start as zeros (biases) start as small numbers: what is multiplied by zero could not be seen.
Read next: `record.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from minidist.autograd import Tensor, ops
from minidist.check.record import Recorder
from minidist.nn import Weight
from minidist.random import normal

_listening: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def heard_by(recorder: Recorder) -> Iterator[None]:
    """Let this rank's thread report its losses to `recorder`."""
    token = _listening.set(recorder)
    try:
        yield
    finally:
        _listening.reset(token)


@contextmanager
def prepared(nudge: bool = False) -> Iterator[None]:
    """Draw no weight as zero, or what is multiplied by it could not be seen; let losses tell their labels.

    nudge: change every weight in its last digit, to see how far rounding alone can reach.
    """
    draw, loss = Weight.draw, ops.cross_entropy

    def draw_all(self: Weight, seed: int, name: str, dtype: Any) -> None:
        mean, std = self.recipe
        self.recipe = (mean, std or 0.1)
        draw(self, seed, name, dtype)
        self.recipe = (mean, std)
        if nudge:
            changed = 1 + 2 * np.finfo(self.dtype).eps * np.sign(
                normal(1, f"nudge {name}", 0, 0, self.size)
            ).reshape(self.shape)
            self.array[...] = (self.array * changed).astype(self.dtype)

    def told(logits: Any, labels: Any, count: float) -> Tensor:
        recorder = _listening.get()
        if recorder is not None:
            recorder.labels(np.asarray(labels.data if isinstance(labels, Tensor) else labels))
        return loss(logits, labels, count)

    Weight.draw, ops.cross_entropy = draw_all, told  # type: ignore[method-assign]
    try:
        yield
    finally:
        Weight.draw, ops.cross_entropy = draw, loss  # type: ignore[method-assign]
