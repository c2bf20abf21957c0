"""Modules: names, sharing, and weights that are drawn by name."""

import numpy as np
import pytest

from minidist.autograd import Parameter
from minidist.nn import Linear, Module, Weight, flatten


class Pair(Module):
    def __init__(self, first: Module, second: Module) -> None:
        self.first = first
        self.second = second


def test_names_are_dotted_paths_in_order_of_assignment() -> None:
    class Tower(Module):
        def __init__(self) -> None:
            self.layers = [Linear(2, 3), Linear(3, 4)]
            self.scale = Weight(4, mean=1.0)

    names = [name for name, _ in Tower().named_parameters()]
    assert names == ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "scale"]


def test_a_shared_parameter_is_listed_once_under_its_first_name() -> None:
    shared = Linear(2, 2)
    assert [name for name, _ in Pair(shared, shared).named_parameters()] == ["first.weight", "first.bias"]


def test_weights_depend_on_seed_and_name_and_on_nothing_else() -> None:
    small = Pair(Linear(2, 3), Linear(3, 2)).initialize(seed=5)

    class Larger(Pair):
        def __init__(self) -> None:
            self.zero = Linear(7, 7)
            super().__init__(Linear(2, 3), Linear(3, 2))

    large = Larger().initialize(seed=5)
    np.testing.assert_array_equal(small.second.weight.data, large.second.weight.data)
    other = Pair(Linear(2, 3), Linear(3, 2)).initialize(seed=6)
    assert not np.array_equal(small.second.weight.data, other.second.weight.data)


def test_weights_have_the_declared_spread_and_the_asked_dtype() -> None:
    layer = Linear(400, 300).initialize(dtype=np.float64)
    assert layer.weight.dtype == np.float64
    assert layer.weight.data.std() == pytest.approx(np.sqrt(2 / 400), rel=0.02)
    assert not layer.bias.data.any()


def test_a_model_that_was_never_initialised_gives_not_a_number_instead_of_passing_for_one() -> None:
    assert np.isnan(Linear(2, 3)(np.ones((1, 2), np.float32)).data).all()


def test_weights_that_are_drawn_again_stay_where_they_live() -> None:
    model = Pair(Linear(2, 3), Linear(3, 2)).initialize(seed=5)
    model.second.bias.requires_grad = False
    groups = flatten(model)
    model.initialize(seed=6)
    expected = Pair(Linear(2, 3), Linear(3, 2)).initialize(seed=6)
    for drawn, fresh in zip(model.parameters(), expected.parameters(), strict=True):
        np.testing.assert_array_equal(drawn.data, fresh.data)
        assert any(np.shares_memory(drawn.data, group.weights) for group in groups)
        assert drawn.version > 0
    with pytest.raises(
        ValueError, match=r"first.weight.* holds float32 .* become float64: flatten the model"
    ):
        model.initialize(dtype=np.float64)


def test_a_parameter_with_values_of_its_own_keeps_them() -> None:
    class Scale(Module):
        def __init__(self) -> None:
            self.factor = Parameter(np.array([2.0, 3.0]))

    np.testing.assert_array_equal(Scale().initialize().factor.data, [2.0, 3.0])


def test_train_and_eval_reach_every_module() -> None:
    model = Pair(Linear(1, 1), Pair(Linear(1, 1), Linear(1, 1)))
    assert not any(module.training for module in model.eval().modules())
    assert all(module.training for module in model.train().modules())


def test_a_module_without_forward_says_what_is_missing() -> None:
    with pytest.raises(TypeError, match="define forward"):
        Module()(1)
