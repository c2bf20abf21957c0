"""Tensors: arrays that remember how they were computed.

    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    loss = (x * x).sum()        # loss.node -> sum -> multiply -> x: the way back
    loss.backward()             # walks it
    x.grad                      # [2. 4. 6.]

A Tensor is a *value*: its array is read-only, and every operation makes a new one. Only a Parameter changes,
when an optimizer updates it between steps, and it counts its versions so that no gradient is computed with
the wrong one. Read next: `parameter.py`, or at once `tape.py`, which records operations, and `backward.py`, which
differentiates them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from minidist.autograd.parameter import Parameter

Array = np.ndarray[Any, Any]
Axes = int | tuple[int, ...] | None


def as_array(value: Any) -> Array:
    """Return numbers as a NumPy array of a native numeric dtype (TypeError with the dtype if it is none)."""
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
        raise TypeError("got a masked array, whose mask would be lost; choose a value: array.filled(0.0)")
    array = np.asarray(value)
    dtype = array.dtype
    if dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize in (4, 8)):
        return array if dtype.isnative else array.astype(dtype.newbyteorder("="))
    raise TypeError(
        f"got dtype {dtype}, expected float32, float64, integers or bool; convert it with .astype"
    )


class Tensor:
    """Hold an array and the node of the tape that computed it.

    data: a NumPy array, or numbers, lists, ... that make one. float32 and float64 can be differentiated;
        integers and bool serve as indices, labels and masks. The array is not copied; through this Tensor it is
        read-only.
    requires_grad: whether `backward` should leave d(loss)/d(this) in `.grad`.

    `==` and `hash` go by object, as for every Python object that is not a number: two tensors that both hold
    3.0 are two variables. `<`, `<=`, `>`, `>=` compare the values and return arrays of bool.
    """

    __slots__ = ("__weakref__", "data", "grad", "node", "requires_grad")

    data: Array
    grad: Array | None
    node: Any  # the tape.Node that computed it; None for a leaf
    requires_grad: bool
    watch: Any = None  # only a Parameter can be watched

    __array_ufunc__ = None  # makes NumPy leave `array * tensor` to Tensor.__rmul__

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        array = as_array(data)
        if requires_grad and array.dtype.kind != "f":
            raise TypeError(
                f"requires_grad=True needs float32 or float64, got dtype {array.dtype}; "
                "gradients of integers do not exist: convert with .astype(np.float32)"
            )
        if array.flags.writeable:
            array = array.view()
            array.setflags(write=False)  # nobody may write through this view
        self.data = array
        self.grad = None
        self.node = None
        self.requires_grad = requires_grad

    # ---- what kind of array it is

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator["Tensor"]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.data)

    def __float__(self) -> float:
        return float(self.data)

    def __repr__(self) -> str:
        body = np.array2string(self.data, separator=", ", prefix=f"{type(self).__name__}(")
        return f"{type(self).__name__}({body}, dtype={self.dtype}, requires_grad={self.requires_grad})"

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise TypeError(
            "a Tensor is not an array, and NumPy would lose its gradient; say tensor.data if you mean that"
        )

    def item(self) -> float:
        """Return the value of a tensor with one element, as a Python number."""
        return self.data.item()

    def __reduce__(self) -> Any:
        """Travel (pickle, copy) as a value: the tape stays behind."""
        return Tensor, (np.array(self.data), self.requires_grad and self.node is None)

    def detach(self) -> "Tensor":
        """Return the same values as a constant, through which no gradient flows."""
        return Tensor(self.data)

    # ---- differentiation

    def backward(
        self,
        grad: Any = None,
        *,
        defer: Iterable["Parameter"] = (),
        ready: Callable[["Parameter"], None] | None = None,
        tick: Callable[[], None] | None = None,
        release: bool = False,
    ) -> "list[WeightPart]":
        """Add d(self)/d(leaf) to the `.grad` of every leaf behind self; `backward.py` says all about it."""
        return backward(self, grad, defer, ready, tick, release)

    def accumulate(self, part: Array) -> None:
        """Add one contribution to `.grad`. The first is copied, because others may hold the same array."""
        if part.shape != self.shape:
            raise ValueError(
                f"the gradient of a tensor of shape {self.shape} must have its shape, got {part.shape}"
            )
        self.grad = np.array(part) if self.grad is None else np.asarray(self.grad + part)

    def accumulate_direct(self, function: Callable[[Array, Array | None, bool], Array], g: Array) -> None:
        """Add function(g, out, accumulate), which a Parameter lets write straight into its gradient."""
        self.accumulate(function(g, None, False))

    # ---- operators: each is an operation of ops_*.py

    def __add__(self, other: Any) -> "Tensor":
        return ops.add(self, other)

    def __radd__(self, other: Any) -> "Tensor":
        return ops.add(other, self)

    def __sub__(self, other: Any) -> "Tensor":
        return ops.subtract(self, other)

    def __rsub__(self, other: Any) -> "Tensor":
        return ops.subtract(other, self)

    def __mul__(self, other: Any) -> "Tensor":
        return ops.multiply(self, other)

    def __rmul__(self, other: Any) -> "Tensor":
        return ops.multiply(other, self)

    def __truediv__(self, other: Any) -> "Tensor":
        return ops.divide(self, other)

    def __rtruediv__(self, other: Any) -> "Tensor":
        return ops.divide(other, self)

    def __matmul__(self, other: Any) -> "Tensor":
        return ops.matmul(self, other)

    def __rmatmul__(self, other: Any) -> "Tensor":
        return ops.matmul(other, self)

    def __pow__(self, exponent: Any) -> "Tensor":
        return ops.power(self, exponent)

    def __rpow__(self, base: Any) -> "Tensor":
        return ops.power(base, self)

    def __neg__(self) -> "Tensor":
        return ops.negative(self)

    def __abs__(self) -> "Tensor":
        return ops.absolute(self)

    def __getitem__(self, index: Any) -> "Tensor":
        return ops.getitem(self, index)

    def __lt__(self, other: Any) -> Array:
        return self.data < _values(other)

    def __le__(self, other: Any) -> Array:
        return self.data <= _values(other)

    def __gt__(self, other: Any) -> Array:
        return self.data > _values(other)

    def __ge__(self, other: Any) -> Array:
        return self.data >= _values(other)

    # ---- the commonest operations as methods

    @property
    def T(self) -> "Tensor":
        return ops.transpose(self)

    def transpose(self, *axes: int) -> "Tensor":
        return ops.transpose(self, axes or None)

    def swapaxes(self, axis1: int, axis2: int) -> "Tensor":
        return ops.swapaxes(self, axis1, axis2)

    def reshape(self, *shape: Any) -> "Tensor":
        return ops.reshape(self, shape[0] if len(shape) == 1 else shape)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> "Tensor":
        return ops.sum(self, axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> "Tensor":
        return ops.mean(self, axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> "Tensor":
        return ops.max(self, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> "Tensor":
        return ops.min(self, axis, keepdims)

    def norm(self, axis: Axes = None, keepdims: bool = False) -> "Tensor":
        return ops.norm(self, axis, keepdims)

    def exp(self) -> "Tensor":
        return ops.exp(self)

    def log(self) -> "Tensor":
        return ops.log(self)

    def sqrt(self) -> "Tensor":
        return ops.sqrt(self)

    def tanh(self) -> "Tensor":
        return ops.tanh(self)

    def sigmoid(self) -> "Tensor":
        return ops.sigmoid(self)

    def relu(self) -> "Tensor":
        return ops.relu(self)


def _values(other: Any) -> Any:
    return other.data if isinstance(other, Tensor) else other


# Operations are made of Tensors, and Tensors have operations: the module that comes first imports last.
from minidist.autograd import ops  # noqa: E402
from minidist.autograd.backward import WeightPart, backward  # noqa: E402
