"""What a Tensor accepts, refuses and promises."""

import copy
import pickle

import numpy as np
import pytest

from minidist.autograd import Parameter, Tensor, no_grad, ops


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.bool_])
@pytest.mark.parametrize("kind", [Tensor, Parameter])
def test_integers_cannot_require_a_gradient(kind, dtype):
    with pytest.raises(TypeError, match=np.dtype(dtype).name):
        kind(np.zeros(2, dtype), requires_grad=True)
    assert kind(np.zeros(2, dtype), requires_grad=False).dtype == dtype


@pytest.mark.parametrize(
    "data", ["text", [None], [{}], np.zeros(2, complex), np.zeros(2, np.float16), object()]
)
@pytest.mark.parametrize("kind", [Tensor, Parameter])
def test_other_dtypes_are_refused_by_name(kind, data):
    with pytest.raises(TypeError, match=f"got dtype {np.asarray(data).dtype}"):
        kind(data)


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match=r"masked array.*filled"):
        Tensor(np.ma.masked_array([1.0, 2.0], [True, False]))
    with pytest.raises(TypeError, match="masked array"):
        Tensor([1.0, 2.0]) + np.ma.masked_array([1.0, 2.0], [True, False])


def test_numbers_and_lists_are_converted():
    assert Tensor(2.0).dtype == np.float64
    assert Tensor([[1.0, 2.0]]).shape == (1, 2)
    assert Tensor(np.float32(2)).dtype == np.float32
    assert Tensor(np.arange(3, dtype=">f4")).dtype == np.dtype("=f4")
    np.testing.assert_array_equal(Tensor(np.array([1, 2], ">i8")).data, [1, 2])


def test_arrays_on_either_side_of_an_operator_make_a_tensor():
    x, a = Tensor([1.0, 2.0], requires_grad=True), np.array([3.0, 4.0])
    for y, expected in [
        (x + a, [4, 6]), (a + x, [4, 6]), (x - a, [-2, -2]), (a - x, [2, 2]), (x * a, [3, 8]), (a * x, [3, 8]),
        (x / a, [1 / 3, 0.5]), (a / x, [3, 2]), (x @ a, 11), (a @ x, 11), (2 - x, [1, 0]), (x**a, [1, 16]),
        (a**x, [3, 16]), (-x, [-1, -2]), (abs(-x), [1, 2]), (np.float64(2) * x, [2, 4]), (x + 1, [2, 3]),
    ]:  # fmt: skip
        assert type(y) is Tensor
        assert y.requires_grad
        np.testing.assert_allclose(y.data, expected)


def test_comparisons_return_arrays():
    x = Tensor([1.0, 2.0, 3.0])
    for got, expected in [
        (x > 2, [0, 0, 1]), (x >= 2, [0, 1, 1]), (x < Tensor(2.0), [1, 0, 0]), (x <= 2, [1, 1, 0]), (x > 2, [0, 0, 1]),
    ]:  # fmt: skip
        assert isinstance(got, np.ndarray)
        np.testing.assert_array_equal(got, np.array(expected, bool))


def test_numpy_does_not_swallow_a_tensor():
    x = Tensor([1.0, 2.0], requires_grad=True)
    for swallow in (np.asarray, np.array, Tensor):
        with pytest.raises(TypeError, match=r"not an array.*tensor\.data"):
            swallow(x)
    with pytest.raises(TypeError):
        np.exp(x)


def test_tensors_are_read_only_whoever_made_them():
    given = np.ones(3)
    x = Tensor(given, requires_grad=True)
    for tensor in (x, x + 1, x.sum(), ops.relu(x), x.reshape(3, 1), x.detach(), ops.softmax(x), x[0]):
        with pytest.raises(ValueError, match="read-only"):
            tensor.data[...] = 0
    given[0] = 2  # the caller's array stays his


def test_saved_values_cannot_be_overwritten_between_forward_and_backward():
    x = Tensor(np.zeros(3), requires_grad=True)
    y = ops.sigmoid(x)
    with pytest.raises(ValueError, match="read-only"):
        y.data[1] = 0
    y.sum().backward()
    np.testing.assert_allclose(x.grad, 0.25)


def test_indices_and_labels_may_be_refilled_between_forward_and_backward():
    x = Tensor(np.zeros((2, 3)), requires_grad=True)
    labels, rows = np.array([0, 1]), np.array([0, 0])
    loss = ops.cross_entropy(x, labels, 2) + x[rows].sum() + ops.embedding(x, rows).sum()
    labels[:] = 2
    rows[:] = 1
    loss.backward()
    third = 1 / 6
    np.testing.assert_allclose(x.grad, [[4 + third - 0.5, 4 + third, 4 + third], [third, third - 0.5, third]])


def test_iteration_length_and_conversion():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert len(x) == 2
    assert [row.sum().item() for row in x] == [3, 7]
    assert float(x[1, 1]) == 4
    assert bool(x[0, 0] - 1) is False
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)
    with pytest.raises(TypeError):
        iter(x[0, 0])
    assert (x.ndim, x.size, x.T.shape) == (2, 4, (2, 2))


def test_repr_shows_values_dtype_and_whether_it_needs_a_gradient():
    assert (
        repr(Tensor([1.0, 2.0], requires_grad=True)) == "Tensor([1., 2.], dtype=float64, requires_grad=True)"
    )
    assert repr(Parameter(np.float32([1]))) == "Parameter([1.], dtype=float32, requires_grad=True)"


def test_detach_and_no_grad_stop_the_gradient():
    x = Tensor([1.0, 2.0], requires_grad=True)
    assert not (x.detach() * 2).requires_grad
    with no_grad():
        assert not (x * 2).requires_grad
        with no_grad():
            pass
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad
    (x * x.detach()).sum().backward()
    np.testing.assert_array_equal(x.grad, [1, 2])


def test_no_grad_ends_with_an_exception_and_holds_for_one_thread_only():
    from concurrent.futures import ThreadPoolExecutor

    x = Tensor(1.0, requires_grad=True)
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    with ThreadPoolExecutor(1) as other, no_grad():
        assert other.submit(lambda: (x * 2).requires_grad).result()
    assert (x * 2).requires_grad


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_tensors_travel_as_values(way):
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = way(x * 3)
    np.testing.assert_array_equal(y.data, [3, 6])
    assert not y.requires_grad
    assert way(x).requires_grad


def test_integer_tensors_keep_their_dtype_when_rearranged():
    x = Tensor(np.arange(6))
    assert x.reshape(2, 3).T[0].dtype == np.int64
