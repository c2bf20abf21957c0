"""Placements: which elements of a parameter are here, and weights that are drawn part by part."""

import numpy as np
import pytest

from minidist.autograd import Tensor, ops
from minidist.nn import Module, Placement, Weight, shares

SHAPE = (3, 7, 2)


class One(Module):
    def __init__(self) -> None:
        self.weight = Weight(*SHAPE, std=1.0)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_parts_drawn_apart_are_the_parts_of_what_one_process_draws(dim: int, ranks: int) -> None:
    whole = One().initialize(seed=3, dtype=np.float64).parameters()[0].data
    together = np.full(SHAPE, np.nan)
    for indices in shares(SHAPE[dim], ranks):
        model = One()
        placement = Placement(SHAPE, dim, indices)
        model.weight.place(placement)
        model.initialize(seed=3, dtype=np.float64)
        assert model.weight.shape == placement.here
        np.testing.assert_array_equal(model.weight.data, placement.take(whole))
        placement.put(model.weight.data, together)
    np.testing.assert_array_equal(together, whole)


def test_indices_need_not_be_neighbours() -> None:
    placement = Placement((2, 6), 1, np.array([0, 1, 4]))
    assert list(placement.stretches()) == [(0, 2), (4, 5), (6, 8), (10, 11)]
    assert placement.take(np.arange(12).reshape(2, 6)).tolist() == [[0, 1, 4], [6, 7, 10]]


def test_a_model_that_is_only_declared_has_no_weights_in_memory() -> None:
    model = One().initialize(seed=None)
    assert np.isnan(model.weight.data).all()
    assert model.weight.array.strides == (0, 0, 0)


def test_a_weight_that_is_drawn_cannot_be_made_a_part() -> None:
    model = One().initialize(seed=3)
    with pytest.raises(ValueError, match=r"drawn already .* declare the model with seed=None"):
        model.weight.place(Placement(SHAPE, 0, np.array([1])))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_dropout_mask_of_a_piece_is_the_piece_of_the_mask(dim: int, ranks: int) -> None:
    mask = {"rate": 0.4, "seed": 1, "purpose": "layer", "step": 6}
    whole = ops.dropout(Tensor(np.ones(SHAPE)), **mask).data
    for indices in shares(SHAPE[dim], ranks):
        placement = Placement(SHAPE, dim, indices)
        piece = ops.dropout(Tensor(np.ones(placement.here)), **mask, stretches=placement.stretches())
        np.testing.assert_array_equal(piece.data, placement.take(whole))
    with pytest.raises(ValueError, match=r"dropout got stretches of 2 elements for a tensor of shape \(3,\)"):
        ops.dropout(Tensor(np.ones(3)), **mask, stretches=[(0, 2)])
