"""Tensors: arrays that remember how they were computed.

    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    loss = (x * x).sum()        # loss.node -> sum -> multiply -> x: the way back
    loss.backward()             # walks it
    x.grad                      # [2. 4. 6.]

A Tensor is a *value*: its array is read-only, and every operation makes a new one. Only a Parameter changes, when an
optimizer updates it between steps, and it counts its versions so that no gradient is computed with the wrong one.
Read next: `tape.py`, which has `record` (forward) and `backward`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from minidist.autograd import source

Array = np.ndarray[Any, Any]
Axes = int | tuple[int, ...] | None


def as_array(value: Any) -> Array:
    """Return numbers as a NumPy array of a native numeric dtype (TypeError with the dtype if it is none)."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("got a masked array, whose mask would be lost; choose a value: array.filled(0.0)")
    array = np.asarray(value)
    if array.dtype.kind == "f" and array.dtype.itemsize in (4, 8) or array.dtype.kind in "iub":
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    raise TypeError(
        f"got dtype {array.dtype}, expected float32, float64, integers or bool; convert it with .astype"
    )


class Tensor:
    """Hold an array and the node of the tape that computed it.

    data: a NumPy array, or numbers, lists, ... that make one. float32 and float64 can be differentiated; integers
        and bool serve as indices, labels and masks. The array is not copied, but read-only through this Tensor.
    requires_grad: whether `backward` should leave d(loss)/d(this) in `.grad`.

    `==` and `hash` go by object, as for every Python object that is not a number: two tensors that both hold 3.0 are
    two variables. `<`, `<=`, `>`, `>=` compare the values and return arrays of bool.
    """

    __slots__ = ("__weakref__", "data", "grad", "node", "requires_grad")

    data: Array
    grad: Array | None
    node: Any  # the tape.Node that computed it; None for a leaf
    requires_grad: bool

    __array_ufunc__ = (
        None  # array * tensor: NumPy leaves it to Tensor.__rmul__, instead of looping over elements
    )

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        array = as_array(data)
        if requires_grad and array.dtype.kind != "f":
            raise TypeError(
                f"requires_grad=True needs float32 or float64, got dtype {array.dtype}; "
                "gradients of integers do not exist: convert with .astype(np.float32)"
            )
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
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
    ) -> "list[tape.WeightPart]":
        """Add d(self)/d(leaf) to the `.grad` of every leaf that self was computed from; see `tape.backward`."""
        return tape.backward(self, grad, defer, ready, tick)

    def accumulate(self, part: Array) -> None:
        """Add one contribution to `.grad`; the first one is copied, because others may hold the same array."""
        self.grad = part.copy() if self.grad is None else self.grad + part

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
        return ops.reshape(
            self, shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        )

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


class Watch(Protocol):
    """What `Parameter.watch` is told; a sync that fetches weights only while they are used is one."""

    def weights_needed(self, parameter: "Parameter") -> None:
        """Hear that the weights are about to be read; when this returns they must be there."""

    def weights_done(self, parameter: "Parameter") -> None:
        """Hear that an operation, or its gradient, has ended that may have read them."""


class Parameter(Tensor):
    """Hold weights: a leaf that an optimizer updates in place between steps.

    name: for messages and checkpoints.
    version: how often the weights were updated. The tape keeps (parameter, version) and never the array; a backward
        that would read another version than its forward did is refused, and the message quotes both lines.
    updated_at: the line of the user's program that updated them last.
    watch: is told when the weights are about to be read and when that is over; None, or a `Watch`.
    grad_written: whether this step has contributed to the gradient yet. The first contribution is *written*, later
        ones are added, so nobody has to fill gradients with zeros between steps.
    """

    __slots__ = ("_updated_at", "array", "bound", "grad_written", "gradient", "name", "version", "watch")

    def __init__(self, data: Any, requires_grad: bool = True, name: str = "") -> None:
        array = as_array(data)
        if requires_grad and array.dtype.kind != "f":
            raise TypeError(
                f"a Parameter that requires a gradient needs float32 or float64, got dtype {array.dtype}; "
                "convert with .astype(np.float32), or say requires_grad=False"
            )
        self.array = array  # the weights; reading `.data` instead tells the watch
        self.node = None
        self.requires_grad = requires_grad
        self.gradient: Array | None = None
        self.grad_written = False
        self.bound = False  # whether `gradient` is memory that somebody else gave us
        self.name = name
        self.version = 0
        self._updated_at: source.Line | None = None
        self.watch: Watch | None = None

    # ---- weights

    @property  # type: ignore[override]
    def data(self) -> Array:
        if self.watch is not None:
            self.watch.weights_needed(self)
        return self.array

    @data.setter
    def data(self, values: Any) -> None:
        if values is not self.array:  # it is the same array after `p.data -= ...`
            self.array[...] = values
        self.updated()

    def updated(self) -> None:
        """Note that the weights have changed: count the version and remember which line did it."""
        self.version += 1
        self._updated_at = source.user_line()

    @property
    def updated_at(self) -> str:
        return source.describe(self._updated_at) if self._updated_at is not None else "never"

    def bind(self, data: Array, grad: Array | None = None) -> None:
        """Move the weights, and the gradient if one is given, into this memory: views into a flat vector, say."""
        for what, memory in (("weights", data), ("gradient", grad)):
            if memory is not None and memory.shape != self.array.shape:
                raise ValueError(
                    f"{what} of {self.label} need memory of shape {self.array.shape}, got {memory.shape}"
                )
        self.array = data
        self.gradient = grad
        self.bound = grad is not None
        self.grad_written = False

    @property
    def label(self) -> str:
        """The name for messages."""
        return f"parameter {self.name!r}" if self.name else f"a parameter of shape {self.shape}"

    def detach(self) -> Tensor:
        """Return a copy of the weights as a constant. (A view would change with the next update.)"""
        return Tensor(self.data.copy())

    # Shape and dtype can be asked without needing the weights.

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def size(self) -> int:
        return self.array.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    # ---- gradient

    @property  # type: ignore[override]
    def grad(self) -> Array | None:
        """This step's gradient; where it is bound, always the same memory, zero until the first contribution."""
        self.finish()
        return self.gradient if self.grad_written else None

    @grad.setter
    def grad(self, values: Array | None) -> None:
        self.zero_grad()
        if values is not None:
            self.accumulate(as_array(values).astype(self.dtype, copy=False))

    def zero_grad(self) -> None:
        """Begin a new step: the next contribution overwrites what stands in the gradient. Touches no memory."""
        self.grad_written = False
        if not self.bound:
            self.gradient = None

    def finish(self) -> None:
        """Fill a bound gradient with zeros if nothing has contributed to it in this step."""
        if self.bound and not self.grad_written:
            self.gradient[...] = 0
            self.grad_written = True

    def accumulate(self, part: Array) -> None:
        """Add one contribution to the gradient, or write it if it is the first one."""
        if part.shape != self.array.shape:
            raise ValueError(f"the gradient of {self.label} must have shape {self.shape}, got {part.shape}")
        if self.gradient is None:
            self.gradient = part.copy()
        elif self.grad_written:
            self.gradient += part
        else:
            self.gradient[...] = part
        self.grad_written = True


# Operations are made of Tensors and Tensors have operations: whichever module comes first must end with an import.
from minidist.autograd import ops, tape  # noqa: E402
