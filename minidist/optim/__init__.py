"""Update rules on flat vectors. `optimizer.py` says what they have in common; `sgd.py` is the shorter one."""

from minidist.optim.adamw import AdamW
from minidist.optim.optimizer import Optimizer, Vectors
from minidist.optim.sgd import SGD

__all__ = ["SGD", "AdamW", "Optimizer", "Vectors"]
