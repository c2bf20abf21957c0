"""What a replica owes every sync: gradients of this step alone, whether the sync listens at the seam or not."""

import numpy as np

from minidist.autograd import Tensor, ops
from minidist.comm import Mesh, world
from minidist.models import MLP
from minidist.nn import Group, Linear, Module, flatten
from minidist.optim import SGD
from minidist.split.replica import Batch
from minidist.split.whole import Whole
from minidist.sync.data_parallel import DataParallel
from minidist.sync.seam import Sync


class WithSpareLayer(Module):
    """An MLP beside a layer that nothing uses: its gradient is zero in every step, whatever its memory held."""

    def __init__(self) -> None:
        self.mlp = MLP([4, 5, 3], dtype=np.float64)
        self.spare = Linear(4, 5)
        self.initialize(dtype=np.float64)

    def forward(self, x: np.ndarray) -> Tensor:
        return self.mlp(x)


class Deaf(Sync):
    """Update from this replica's gradients alone, and ignore all that is said at the seam."""

    def __init__(self, groups: list[Group]) -> None:
        self.optimizer = SGD(groups, lr=0.1, momentum=0.9)

    def step(self) -> float:
        self.optimizer.step()
        return 0.0


class Listening(DataParallel):
    def __init__(self, groups: list[Group]) -> None:
        super().__init__(Mesh(world(), data=1), groups, SGD(groups, lr=0.1, momentum=0.9))


def weights_after_steps(kind: type[Deaf] | type[Listening]) -> np.ndarray:
    model = WithSpareLayer()
    (group,) = flatten(model, allocate=lambda n, dtype: np.full(n, np.nan, dtype))
    replica = Whole(model, ops.cross_entropy, kind([group]))
    inputs, labels = np.eye(4), np.array([0, 1, 2, 0])
    for _ in range(3):
        replica.forward_backward(Batch(inputs, labels, 4))
        replica.sync.step()
    return group.weights


def test_a_sync_may_ignore_the_seam() -> None:
    weights = weights_after_steps(Deaf)
    assert np.isfinite(weights).all()
    assert weights.tolist() == weights_after_steps(Listening).tolist()


def test_microbatches_that_would_be_empty_are_left_out() -> None:
    batch = Batch(np.arange(3), np.arange(3), 7)
    assert [piece.inputs.tolist() for piece in batch.cut(2)] == [[0, 1], [2]]
    assert [len(piece.inputs) for piece in batch.cut(5)] == [1, 1, 1]
    assert Batch(np.empty(0), np.empty(0), 7).cut(2) == []
    assert all(piece.count == 7 for piece in batch.cut(2))
