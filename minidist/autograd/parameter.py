"""Parameters: the tensors that change. An optimizer updates their weights in place between steps.

    weights    [ ........|  w.array  |...... ]      views into two long vectors, once a model is flattened
    gradients  [ ........| w.gradient|...... ]      (minidist/nn/flat.py); two arrays of their own before

In a distributed program more can happen to weights than an update: they are averaged with other ranks' while
a tape still needs the old ones, or they are not even here until somebody fetches them. Hence a version,
counted by every update and checked by backward, and a `watch`, which is told when weights are read. The gradient's
memory, too, may come only when there is something to write: from a `lender`. Read next: `tape.py`.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from minidist.autograd import source
from minidist.autograd.tensor import Array, Tensor, as_array


class Watch(Protocol):
    """What `Parameter.watch` is told; a sync that fetches weights only while they are used is one."""

    def weights_needed(self, parameter: "Parameter") -> None:
        """Hear that the weights are about to be read; when this returns they must be there."""

    def weights_done(self, parameter: "Parameter") -> None:
        """Hear that an operation, or its gradient, has ended that may have read them."""


class Parameter(Tensor):
    """Hold weights: a leaf that an optimizer updates in place between steps.

    name: for messages and checkpoints.
    version: how often the weights were updated. The tape keeps (parameter, version) and never the array; a
        backward that would read another version than its forward did is refused, quoting both lines.
    updated_at: the line of the user's program that updated them last.
    watch: is told when the weights are about to be read and when that is over; None, or a `Watch`.
    lender: is called before a step's first contribution to the gradient, and binds memory for it; None where it stays.
    stash: weights of earlier versions that a tape still needs, by version; None, unless somebody keeps them.
    placement: what part of the whole model's parameter this is (minidist/nn/placement.py); None: all of it.
    grad_written: whether this step has contributed to the gradient yet. The first contribution is *written*,
        later ones are added, so nobody has to fill gradients with zeros between steps.
    """

    __slots__ = (
        "_updated_at",
        "array",
        "bound",
        "grad_written",
        "gradient",
        "lender",
        "name",
        "placement",
        "stash",
        "version",
        "watch",
    )

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
        self.lender: Callable[[Parameter], None] | None = None
        self.stash: dict[int, Array] | None = None
        self.placement: Any = None

    # ---- weights

    @property
    def data(self) -> Array:
        if self.watch is not None:
            self.watch.weights_needed(self)
        return self.array

    @data.setter
    def data(self, values: Any) -> None:
        if values is not self.array:  # as it is after `p.data -= ...`, which has written already
            values = as_array(values)
            if values.shape != self.shape:
                raise ValueError(f"the weights of {self.label} must keep their shape, got {values.shape}")
            self.array[...] = values
        self.updated()

    def updated(self, line: source.Line | None = None) -> None:
        """Note that the weights have changed: count the version and remember which line did it, by default ours."""
        self.version += 1
        self._updated_at = line or source.user_line()

    def keep_version(self) -> None:
        """Stash a copy of the weights, so that a tape which was recorded with them works after an update, too."""
        self.stash = self.stash or {}
        if self.version not in self.stash:
            self.stash[self.version] = self.data.copy()

    def forget_versions(self, before: int) -> None:
        """Free the stashed weights of all versions before this one."""
        if self.stash:
            self.stash = {version: array for version, array in self.stash.items() if version >= before}

    @property
    def updated_at(self) -> str:
        return source.describe(self._updated_at) if self._updated_at is not None else "never"

    def bind(self, data: Array, grad: Array | None = None) -> None:
        """Let this memory hold the weights and, if given, the gradient: views into flat vectors, say."""
        for what, memory in (("weights", data), ("gradient", grad)):
            if memory is not None and memory.shape != self.array.shape:
                raise ValueError(
                    f"{what} of {self.label} need memory of shape {self.array.shape}, got {memory.shape}"
                )
        if grad is not None and not grad.flags.c_contiguous:
            raise ValueError(
                f"the gradient of {self.label} needs contiguous memory, got strides {grad.strides}"
            )
        self.array = data
        self.gradient = grad
        self.bound = grad is not None
        self.grad_written = False

    def __reduce__(self) -> Any:
        """Travel (pickle, copy) with the weights, but out of the flat vectors, without gradient and watch."""
        left = ("array", "gradient", "grad_written", "bound", "watch", "lender", "stash", "_updated_at")
        slots = [
            name for kind in type(self).__mro__ if issubclass(kind, Parameter) for name in kind.__slots__
        ]
        state = {name: getattr(self, name) for name in slots if name not in left}
        state |= getattr(self, "__dict__", {})  # of subclasses without slots
        return _arrive, (type(self), np.array(self.data), self.requires_grad, state)

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

    @property
    def grad(self) -> Array | None:
        """This step's gradient: None, or where memory is bound zeros, before the first contribution."""
        self.finish()
        return self.gradient if self.grad_written else None

    @grad.setter
    def grad(self, values: Array | None) -> None:
        self.zero_grad()
        if values is not None:
            self.accumulate(as_array(values).astype(self.dtype, copy=False))

    def zero_grad(self) -> None:
        """Begin a new step: the next contribution overwrites the gradient. Touches no memory."""
        self.grad_written = False
        if not self.bound:
            self.gradient = None

    def finish(self) -> None:
        """Fill a bound gradient with zeros if nothing has contributed to it in this step."""
        if self.bound and self.gradient is not None and not self.grad_written:
            self.gradient[...] = 0
            self.grad_written = True

    def accumulate_direct(self, function: Callable[[Array, Array | None, bool], Array], g: Array) -> None:
        """Let function(g, out, accumulate) write its contribution straight into the gradient, or add it."""
        if self.lender is not None and not self.grad_written:
            self.lender(self)
        if self.gradient is None:
            self.accumulate(function(g, None, False))
        else:
            function(g, self.gradient, self.grad_written)
            self.grad_written = True

    def accumulate(self, part: Array) -> None:
        """Add one contribution to the gradient, or write it if it is the first one."""
        if part.shape != self.array.shape:
            raise ValueError(f"the gradient of {self.label} must have shape {self.shape}, got {part.shape}")
        if self.lender is not None and not self.grad_written:
            self.lender(self)
        if self.gradient is None:
            self.gradient = np.array(part, order="C")
        elif self.grad_written:
            self.gradient += part
        else:
            self.gradient[...] = part
        self.grad_written = True


def _arrive(kind: type[Parameter], data: Array, requires_grad: bool, state: dict[str, Any]) -> Parameter:
    """Make a parameter of a subclass whose __init__ may take other arguments."""
    parameter = kind.__new__(kind)
    Parameter.__init__(parameter, data, requires_grad)
    for name, value in state.items():
        setattr(parameter, name, value)
    return parameter
