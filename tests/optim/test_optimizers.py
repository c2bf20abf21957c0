"""Update rules: right values from the definitions, state that fits the vectors, refused hyperparameters."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from minidist.autograd import Parameter
from minidist.models import MLP
from minidist.nn import Group, Module, flatten
from minidist.optim import SGD, AdamW, Optimizer


def one_weight(value: float, gradient: float) -> list[Group]:
    class One(Module):
        def __init__(self) -> None:
            self.w = Parameter(np.array([value]))

    groups = flatten(One())
    groups[0].gradients[:] = gradient
    return groups


@pytest.mark.parametrize(
    ("gradient", "change"),
    # eps is added after the bias correction: the first step is lr * g / (|g| + eps).
    [(1e-8, 0.5), (1e-7, 1e-7 / 1.1e-7), (1.0, 1.0 / (1.0 + 1e-8))],
)
def test_the_first_adam_step_adds_eps_after_the_bias_correction(gradient: float, change: float) -> None:
    groups = one_weight(0.0, gradient)
    AdamW(groups, lr=1.0, eps=1e-8, weight_decay=0.0).step()
    assert groups[0].weights[0] == pytest.approx(-change, rel=1e-6)


def test_adamw_decays_the_weights_from_before_the_step() -> None:
    groups = one_weight(1.0, 1.0)
    AdamW(groups, lr=0.1, weight_decay=0.1).step()
    # 1 - 0.1 * 0.1 * 1 - 0.1; had it decayed the new weight, 0.891
    assert groups[0].weights[0] == pytest.approx(0.89, abs=1e-8)


def test_adamw_decays_a_weight_without_gradient() -> None:
    groups = one_weight(2.0, 0.0)
    AdamW(groups, lr=0.1, weight_decay=0.5).step()
    assert groups[0].weights[0] == pytest.approx(2.0 * (1 - 0.05))


def test_sgd_follows_its_definition_over_three_steps() -> None:
    groups = one_weight(1.0, 0.0)
    rule = SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01)
    w, v = 1.0, 0.0
    for gradient in (1.0, -2.0, 0.5):
        groups[0].gradients[:] = gradient
        rule.step()
        v = 0.9 * v + gradient + 0.01 * w
        w -= 0.1 * v
        assert groups[0].weights[0] == pytest.approx(w, rel=1e-14)


def test_twice_the_learning_rate_is_twice_the_step() -> None:
    changes = []
    for lr in (0.1, 0.2):
        groups = one_weight(1.0, 3.0)
        SGD(groups, lr=lr).step()
        changes.append(1.0 - groups[0].weights[0])
    assert changes[1] == pytest.approx(2 * changes[0])


@pytest.mark.parametrize("rule", [SGD, AdamW])
def test_scale_multiplies_the_gradient_and_not_the_decay(rule: type) -> None:
    scaled, plain = one_weight(1.0, 4.0), one_weight(1.0, 1.0)
    rule(scaled, lr=0.1, weight_decay=0.3).step(scale=0.25)
    rule(plain, lr=0.1, weight_decay=0.3).step()
    assert scaled[0].weights[0] == pytest.approx(plain[0].weights[0], rel=1e-12)


def test_an_update_changes_the_version_that_the_tape_checks() -> None:
    groups = one_weight(1.0, 1.0)
    parameter = groups[0].parameters[0]
    before = parameter.version
    SGD(groups, lr=0.1).step()
    assert parameter.version == before + 1


def test_frozen_parameters_are_neither_updated_nor_decayed() -> None:
    class Half(Module):
        def __init__(self) -> None:
            self.moves = Parameter(np.ones(2))
            self.stays = Parameter(np.ones(3), requires_grad=False)

    model = Half()
    groups = flatten(model)
    for group in groups:
        if group.trainable:
            group.gradients[:] = 1
    rule = AdamW(groups, lr=0.1, weight_decay=0.5)
    rule.step()
    assert (model.stays.data == 1).all()
    assert (model.moves.data < 1).all()
    assert [len(v) for v in rule.state["mean"]] == [2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_state_has_the_dtype_of_the_weights(dtype: type) -> None:
    class One(Module):
        def __init__(self) -> None:
            self.w = Parameter(np.ones(3, dtype))

    groups = flatten(One())
    groups[0].gradients[:] = 1
    rule = AdamW(groups, lr=np.float64(0.1))
    rule.step()
    assert {v[0].dtype for v in rule.state.values()} == {np.dtype(dtype)}
    assert groups[0].weights.dtype == dtype


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda g: SGD(g, lr=-1.0), "lr is -1.0"),
        (lambda g: SGD(g, lr=float("nan")), "lr is nan"),
        (lambda g: SGD(g, lr=0.1, momentum=float("inf")), "momentum is inf"),
        (lambda g: AdamW(g, lr=0.1, weight_decay=-0.1), "weight_decay is -0.1"),
        (lambda g: AdamW(g, lr=0.1, betas=(0.9, 1.0)), "below 1"),
    ],
)
def test_hyperparameters_out_of_range_are_refused_by_name(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(one_weight(1.0, 1.0))


@pytest.mark.parametrize("rule", [partial(SGD, momentum=0.9), AdamW])
def test_parts_that_come_one_after_another_make_the_same_update(rule: Callable[..., Optimizer]) -> None:
    def train(parts: list[tuple[int, slice]] | None) -> tuple[np.ndarray, list[float]]:
        groups = flatten(MLP([3, 4, 2], dtype=np.float64))
        optimizer = rule(groups, lr=0.1, weight_decay=0.01)
        for step in range(3):
            groups[0].gradients[:] = np.sin(np.arange(groups[0].gradients.size) + step)
            squares = optimizer.step(0.5, parts)
        return groups[0].weights, squares

    whole, squares = train(None)
    parted, parted_squares = train([(0, slice(0, 7)), (0, slice(7, None))])
    np.testing.assert_array_equal(parted, whole)
    np.testing.assert_allclose(parted_squares, squares, rtol=1e-14)
