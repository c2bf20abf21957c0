"""What no kernel takes, and the sentence that says so: the same on every path."""

import numpy as np
import pytest

UNARY = ["sum", "max", "argmax", "sum_of_squares", "log_sum_exp", "softmax", "gelu", "relu"]
BINARY = ["matmul", "softmax_backward", "gelu_backward", "relu_backward"]


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("bad", ["i8", "?", "f2", "c8", ">f4", ">f8", "O", "U3", "M8[s]", [("x", "f4")]])
def test_other_types_are_refused_by_their_name(kernels, name, bad):
    x = np.zeros((2, 2), bad)
    with pytest.raises(TypeError, match=r"x has dtype .*, expected float32 or float64") as error:
        getattr(kernels, name)(x)
    assert str(x.dtype) in str(error.value)


@pytest.mark.parametrize("name", UNARY)
def test_what_is_no_array_is_refused(kernels, name):
    for bad, kind in [
        ([1.0, 2.0], "list"),
        (1.0, "float"),
        (None, "NoneType"),
        (np.ma.zeros(3), "MaskedArray"),
    ]:
        with pytest.raises(TypeError, match=f"x must be a NumPy array, got {kind}"):
            getattr(kernels, name)(bad)


@pytest.mark.parametrize("name", BINARY)
def test_two_types_in_one_call_are_both_named(kernels, name):
    with pytest.raises(TypeError, match=r"one dtype, got: .* is float32, .* is float64"):
        getattr(kernels, name)(np.ones((2, 2), np.float32), np.ones((2, 2)))


@pytest.mark.parametrize("name", BINARY[1:])
def test_a_gradient_of_another_shape_is_refused(kernels, name):
    with pytest.raises(ValueError, match=r"grad has shape \(3,\), expected \(2,\)"):
        getattr(kernels, name)(np.ones(3), np.ones(2))


def test_subclasses_of_ndarray_are_taken_as_arrays(kernels, tmp_path):
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(3, 4))
    x[...] = 1
    assert kernels.sum(x) == 12
    assert kernels.matmul(x, x.T)[0, 0] == 4


def test_shapes_that_do_not_multiply_are_named(kernels):
    with pytest.raises(ValueError, match=r"got shapes \(2, 3\) and \(4, 5\)"):
        kernels.matmul(np.ones((2, 3)), np.ones((4, 5)))
    with pytest.raises(ValueError, match=r"at least 2 dims, got shapes \(3,\) and \(3, 2\)"):
        kernels.matmul(np.ones(3), np.ones((3, 2)))
    with pytest.raises(
        ValueError, match=r"leading dims do not broadcast, got shapes \(2, 3, 4\) and \(3, 4, 5\)"
    ):
        kernels.matmul(np.ones((2, 3, 4)), np.ones((3, 4, 5)))


def test_an_unfit_out_is_refused_and_left_alone(kernels):
    a, b = np.ones((2, 3)), np.ones((3, 4))
    frozen = np.zeros((2, 4))
    frozen.flags.writeable = False
    memory = np.zeros(20)
    overlapping = memory[:6].reshape(2, 3)
    for out, left, message in [
        (np.zeros((2, 4), np.float32), a, "out has dtype float32, expected float64"),
        (np.zeros((4, 2)), a, r"out has shape \(4, 2\), expected \(2, 4\)"),
        (frozen, a, "out is read-only"),
        (memory[4:12].reshape(2, 4), overlapping, "out overlaps a"),
        ([0.0], a, "out must be a NumPy array, got list"),
    ]:
        with pytest.raises(ValueError, match=message):
            kernels.matmul(left, b, out)
        assert not np.any(out)
    x = np.ones((3, 2))
    for out, message in [
        (np.zeros(3), r"out has shape \(3,\), expected \(2,\)"),
        (np.zeros(2, np.float32), "out has dtype float32"),
        (x[0], "out overlaps x"),
    ]:
        with pytest.raises(ValueError, match=message):
            kernels.sum(x, 0, out=out)


def test_an_out_between_the_inputs_elements_is_no_overlap(kernels):
    memory = np.ones((4, 8))
    kernels.matmul(memory[:, ::2], np.eye(4), out=memory[:, 1::2])
    assert (memory == 1).all()


def test_accumulate_needs_an_out(kernels):
    with pytest.raises(ValueError, match="no out was given"):
        kernels.matmul(np.ones((2, 2)), np.ones((2, 2)), accumulate=True)
    with pytest.raises(ValueError, match="no out was given"):
        kernels.sum(np.ones(2), accumulate=True)


def test_axes_that_are_not_there_are_refused(kernels):
    for reduce in (kernels.sum, kernels.max, kernels.argmax, kernels.log_sum_exp):
        with pytest.raises(ValueError, match="axis 2 is out of range for an array of 2 dims"):
            reduce(np.ones((2, 2)), 2)
    with pytest.raises(ValueError, match="names a dim twice"):
        kernels.sum(np.ones((2, 2)), (0, -2))


def test_rows_need_a_dim_and_logits_need_two(kernels):
    for name in ("softmax", "log_sum_exp"):
        with pytest.raises(ValueError, match=r"0-d array|an array of 0 dims"):
            getattr(kernels, name)(np.ones(()))
    with pytest.raises(ValueError, match=r"logits must have 2 dims, got shape \(3,\)"):
        kernels.cross_entropy(np.ones(3), np.zeros(3, int))
    with pytest.raises(TypeError, match="labels must be integers, got dtype float64"):
        kernels.cross_entropy(np.ones((3, 2)), np.zeros(3))
    with pytest.raises(ValueError, match=r"labels has shape \(2,\), expected \(3,\)"):
        kernels.cross_entropy(np.ones((3, 2)), np.zeros(2, int))
    with pytest.raises(ValueError, match=r"gain has shape \(3,\), expected \(4,\)"):
        kernels.layer_norm(np.ones((2, 4)), np.ones(3), np.ones(4), 1e-5)
