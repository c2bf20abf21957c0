"""Flat vectors: parameters are views, groups hold what is treated alike, buckets are slices."""

import numpy as np
import pytest

from minidist.autograd import Parameter, ops
from minidist.models import CNN, GPT, MLP
from minidist.nn import Linear, Module, cut_into_buckets, flatten


def small_models() -> dict[str, tuple[Module, np.ndarray]]:
    images = np.zeros((2, 1, 8, 8), np.float32)
    return {
        "mlp": (MLP([64, 5, 4, 10]), images),
        "cnn": (CNN((1, 8, 8), 10, channels=(2, 3)), images),
        "gpt": (GPT(11, time=4, layers=2, width=8, heads=2), np.zeros((2, 4), np.int64)),
    }


def test_parameters_are_views_into_the_vectors_with_their_values_kept() -> None:
    model = MLP([3, 2, 2], seed=1)
    before = [p.data.copy() for p in model.parameters()]
    (group,) = flatten(model)
    for parameter, values in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(parameter.data, values)
        assert np.shares_memory(parameter.data, group.weights)
    group.weights[:] = 7
    assert all((p.data == 7).all() for p in model.parameters())
    group.gradients[:] = 3
    model.layers[0].weight.grad_written = True
    assert (model.layers[0].weight.grad == 3).all()


def test_the_layout_table_says_where_each_name_lives() -> None:
    (group,) = flatten(MLP([3, 2, 2]))
    assert [(e.name, e.shape, e.offset, e.size) for e in group.layout] == [
        ("layers.1.bias", (2,), 0, 2),
        ("layers.1.weight", (2, 2), 2, 4),
        ("layers.0.bias", (2,), 6, 2),
        ("layers.0.weight", (3, 2), 8, 6),
    ]


def test_frozen_parameters_and_other_dtypes_have_groups_of_their_own() -> None:
    class Mixed(Module):
        def __init__(self) -> None:
            self.first = Linear(2, 2).initialize()
            self.frozen = Parameter(np.ones(3, np.float32), requires_grad=False)
            self.wide = Parameter(np.ones(4, np.float64))

    groups = {(g.dtype.name, g.trainable): g for g in flatten(Mixed())}
    assert {key: len(g.weights) for key, g in groups.items()} == {
        ("float32", True): 6,
        ("float32", False): 3,
        ("float64", True): 4,
    }
    assert groups["float32", False].gradients is None


@pytest.mark.parametrize("name", ["mlp", "cnn", "gpt"])
def test_backward_completes_parameters_in_the_order_of_the_layout(name: str) -> None:
    model, inputs = small_models()[name]
    (group,) = flatten(model)
    completed: list[str] = []
    ops.sum(model(inputs)).backward(ready=lambda parameter: completed.append(parameter.name))
    assert sorted(completed) == sorted(e.name for e in group.layout)
    # Within one operation the order is free (a bias may come before its weight), across operations it is not.
    operations = [name.rsplit(".", 1)[0] for name in completed]
    expected = [entry.name.rsplit(".", 1)[0] for entry in group.layout]
    assert [a for a, b in zip(operations, [None, *operations], strict=False) if a != b] == [
        a for a, b in zip(expected, [None, *expected], strict=False) if a != b
    ]


def test_memory_comes_from_the_caller() -> None:
    arena = np.full(1000, 9.0, np.float32)
    taken = []

    def allocate(n: int, dtype: np.dtype) -> np.ndarray:
        assert dtype == arena.dtype
        start = sum(taken)
        taken.append(n)
        return arena[start : start + n]

    model = MLP([3, 2, 2])
    (group,) = flatten(model, allocate)
    assert taken == [14, 14 + 16]  # gradients: with room to begin where a cache line does
    assert np.shares_memory(group.weights, arena)


@pytest.mark.parametrize("size", [1, 10, 24, 10**9])
def test_buckets_tile_the_gradients_with_whole_parameters(size: int) -> None:
    groups = flatten(MLP([3, 2, 4, 2]))
    buckets = cut_into_buckets(groups, size)
    assert [b.index for b in buckets] == list(range(len(buckets)))
    stops = [0]
    for bucket in buckets:
        assert bucket.region.start == stops[-1]
        assert len(bucket.gradients) == sum(p.size for p in bucket.parameters)
        stops.append(bucket.region.stop)
    assert stops[-1] == len(groups[0].weights)
    assert all(b.gradients.nbytes >= size for b in buckets[:-1])
    assert len(buckets) == {1: 6, 10: 4, 24: 3, 10**9: 1}[size]


def test_an_update_counts_the_version_of_every_parameter() -> None:
    model = MLP([3, 2, 2])
    (group,) = flatten(model)
    versions = [p.version for p in model.parameters()]
    group.updated()
    assert [p.version for p in model.parameters()] == [v + 1 for v in versions]


def test_gradients_can_move_to_other_memory() -> None:
    model = MLP([3, 4, 2], dtype=np.float64)
    (group,) = flatten(model)
    weights = group.weights.copy()
    given = []

    def allocate(n: int, dtype: np.dtype) -> np.ndarray:
        given.append(np.full(n, np.nan, dtype))
        return given[0]

    group.move_gradients(allocate)
    assert group.gradients is not None
    assert group.gradients.base is given[0]
    for parameter in group.parameters:
        parameter.accumulate(np.ones(parameter.shape))
    assert group.gradients.tolist() == [1.0] * weights.size
    assert np.nansum(given[0]) == weights.size  # the room around them is not written
    assert (group.weights == weights).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_gradients_of_most_parameters_begin_where_a_cache_line_does(dtype: type) -> None:
    model = MLP(
        [32, 16, 48, 10], dtype=dtype
    )  # the last layer's bias comes early, and shifts all that follows
    (group,) = flatten(model)

    def begins(parameter: Parameter) -> int:
        assert parameter.gradient is not None
        return parameter.gradient.ctypes.data % 64

    assert [begins(parameter) for layer in model.layers[:2] for parameter in layer.parameters()] == [0] * 4
    assert begins(model.layers[2].bias) != 0
    group.move_gradients(np.zeros)
    assert begins(model.layers[0].weight) == 0


def test_a_buckets_memory_comes_and_goes_and_shapes_stay() -> None:
    model = MLP([3, 2, 2])
    (group,) = flatten(model)
    before = [p.data.copy() for p in model.parameters()]
    (bucket,) = cut_into_buckets([group], 1000)
    memory, gradients = bucket.weights.copy(), np.zeros(bucket.size, group.dtype)
    bucket.lend_weights(None)
    assert np.isnan(model.layers[0].weight.data).all()
    assert model.layers[0].weight.shape == (3, 2)
    assert [p.array.strides for p in model.parameters()] == [(0, 0), (0,), (0, 0), (0,)]  # no memory
    bucket.lend_gradients(None)
    assert model.layers[0].weight.gradient is None
    bucket.lend_weights(memory)
    bucket.lend_gradients(gradients)
    for parameter, values in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(parameter.data, values)
        parameter.accumulate(np.ones(parameter.shape, group.dtype))
    assert (gradients == 1).all()
