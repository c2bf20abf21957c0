"""The gradient checker itself: it must find mistakes, and say where."""

import numpy as np
import pytest

from minidist.autograd import check_gradients, record


def test_a_wrong_gradient_is_found_with_its_element_and_both_values():
    def square(x):
        return record(x.data**2, (x, lambda g: g * 2 * x.data + [0, 0, 0.001]))

    with pytest.raises(
        AssertionError, match=r"input 0, element \(2,\): the gradient is .* differences .* say"
    ):
        check_gradients(square, [1.0, 2.0, 3.0])


def test_a_missing_gradient_is_found():
    with pytest.raises(AssertionError, match="input 1"):
        check_gradients(lambda a, b: a * b.data, [1.0, 2.0], [3.0, 4.0])


def test_a_nan_gradient_is_found():
    with pytest.raises(AssertionError, match="nan"):
        check_gradients(lambda x: record(x.data * 2, (x, lambda g: g * np.nan)), [1.0])


def test_float32_is_refused():
    with pytest.raises(TypeError, match="float64, got float32"):
        check_gradients(lambda x: x, np.ones(2, np.float32))
