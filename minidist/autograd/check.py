"""Is a gradient right? Compare it with differences of function values.

    d(loss)/dx_i  is about  (loss(x + h e_i) - loss(x - h e_i)) / 2h

The two sides share no code, so a wrong gradient has nowhere to hide. Use float64: in float32 the difference
of two nearly equal losses has few correct digits. Use it for operations of your own:

    check_gradients(lambda x, w: (x @ w).tanh(), x, w)
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from minidist.autograd.tape import no_grad
from minidist.autograd.tensor import Tensor, as_array


def check_gradients(
    function: Callable[..., Tensor], *inputs: Any, tolerance: float = 1e-6, step: float = 6e-6
) -> None:
    """Compare the gradients of function(*tensors) with central differences; raise AssertionError where they
    differ.

    function: takes as many Tensors as there are inputs, and returns one of any shape.
    inputs: float64 arrays, in any memory order.
    tolerance: allowed error, relative to the largest entry of the gradient (absolute where that is below 1).
    step: h relative to the largest entry of an input. Its error falls with h^2 and rounding's grows with 1/h;
    both
        are about 1e-11 at the cube root of the machine's precision, 6e-6.
    """
    arrays = [as_array(x) for x in inputs]
    for x in arrays:
        if x.dtype != np.float64:
            raise TypeError(
                f"check_gradients needs float64, got {x.dtype}: differences of float32 say little"
            )
    tensors = [Tensor(x, requires_grad=True) for x in arrays]
    output = function(*tensors)
    # One number of all outputs, by fixed weights that are all different: a mistake cannot cancel.
    weights = np.cos(np.arange(1, output.size + 1)).reshape(output.shape)
    output.backward(weights)

    def loss(*changed: np.ndarray) -> float:
        with no_grad():
            return float((function(*(Tensor(x) for x in changed)).data * weights).sum())

    for number, (x, tensor) in enumerate(zip(arrays, tensors, strict=True)):
        got = np.zeros_like(x) if tensor.grad is None else tensor.grad
        if got.shape != x.shape or got.dtype != x.dtype:
            raise AssertionError(
                f"input {number}: the gradient is {got.dtype} of shape {got.shape}, expected {x.dtype} {x.shape}"
            )
        expected = np.empty(x.shape)
        h = step * (np.abs(x).max(initial=0) or 1.0)
        for index in np.ndindex(x.shape):
            sides = []
            for sign in (1, -1):
                moved = x.copy()
                moved[index] += sign * h
                sides.append((loss(*arrays[:number], moved, *arrays[number + 1 :]), moved[index]))
            (above, right), (below, left) = sides
            expected[index] = (above - below) / (right - left)  # not / 2h: x + h was rounded
        error = np.abs(got - expected)
        allowed = tolerance * max(1.0, np.abs(expected).max(initial=0))
        if not (error <= allowed).all():
            worst = np.unravel_index(np.nan_to_num(error, nan=np.inf).argmax(), x.shape)
            raise AssertionError(
                f"input {number}, element {tuple(map(int, worst))}: the gradient is {got[worst]:.9g}, differences of "
                f"function values say {expected[worst]:.9g}"
            )
