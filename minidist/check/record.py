"""What one rank does in one step, written down as plain data.

    weights at the start | rows read | each layer's outputs | gradients made | gradients applied | weights after

A rank's step is the user's own code, so nothing in it is asked to report. Instead the objects that it uses are listened
to: each layer's `forward`, each parameter's gradient and update, and the loss. The engine does not know it.
Read next: `found.py`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidist.autograd import Parameter, Tensor
from minidist.check.found import named_modules, roots, row_keys, walk
from minidist.nn import Module, Placement
from minidist.optim import Optimizer
from minidist.sync.zero import Zero

Arrays = dict[str, np.ndarray]


@dataclass
class Call:
    """One use of a layer: what it gave, for which rows of the batch (None: not known), with which own weights."""

    layer: str
    use: int  # how often this chain of layers had used it before
    rows: np.ndarray | None
    output: np.ndarray
    weights: Arrays


@dataclass
class Record:
    """One rank's step."""

    rank: int = 0
    start: Arrays = field(default_factory=dict)
    reads: list[np.ndarray] = field(default_factory=list)  # rows of each forward through the model
    calls: list[Call] = field(default_factory=list)
    # Of each loss: the labels it was given, and how many layer calls had been made.
    labels: list[tuple[np.ndarray, int]] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)  # gradients that were added to those of the step before
    applied: dict[str, np.ndarray | None] = field(default_factory=dict)  # gradients when the weights changed
    left: dict[str, np.ndarray | None] = field(default_factory=dict)  # gradients when the step was over
    updates: dict[str, int] = field(default_factory=dict)
    end: Arrays = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)  # of the optimizer
    buffers: Arrays = field(default_factory=dict)  # a layer's arrays that are no parameters
    value: Any = None  # what the step returned
    messages: int = 0
    placements: dict[str, Placement | None] = field(default_factory=dict)
    lr: float | None = None


class Recorder:
    """Listen to what belongs to one rank.

    state: what the user's `build` returned: modules, parameters, optimizers and replicas are found in it.
    """

    def __init__(self, rank: int, state: Any) -> None:
        self.rank = rank
        self.found = list(walk(state))
        self.modules = roots(self.found)
        self.parameters: dict[str, Parameter] = {}
        for module in self.modules:
            self.parameters.update(module.named_parameters())
        for number, parameter in enumerate(x for x in self.found if isinstance(x, Parameter)):
            if not any(parameter is known for known in self.parameters.values()):
                self.parameters[parameter.name or f"parameter {number}"] = parameter
        self.name_of = {parameter: name for name, parameter in self.parameters.items()}
        self.optimizers = [x for x in self.found if isinstance(x, Optimizer)]
        self.zeros = [x for x in self.found if isinstance(x, Zero)]
        self.record = Record(rank)
        self._depth = 0
        self._rows: np.ndarray | None = None
        self._uses: dict[str, int] = {}
        self._keys: dict[bytes, int] = {}
        self._used_up: set[str] = set()  # gradients that an update has applied
        layers: dict[int, str] = {}
        for module in self.modules:
            for name, layer in named_modules(module):
                if layers.setdefault(id(layer), name) == name:
                    self._listen_to_layer(name, layer)
        self._floats = dict(self._arrays())
        for name, parameter in self.parameters.items():
            self._listen_to_parameter(name, parameter)

    # ---- listening

    def _listen_to_layer(self, name: str, layer: Module) -> None:
        plain = layer.forward
        own = {n: p for n, p in layer.parts() if isinstance(p, Parameter)}

        def forward(*inputs: Any, **more: Any) -> Any:
            if self._depth == 0:
                self._enter(inputs)
            weights = {
                self.name_of[p]: p.array.copy() for p in own.values() if _here(p) and p in self.name_of
            }
            self._depth += 1
            try:
                output = plain(*inputs, **more)
            finally:
                self._depth -= 1
            if isinstance(output, Tensor) and output.ndim:
                use = self._uses.get(name, 0)
                self._uses[name] = use + 1
                self.record.calls.append(Call(name, use, self._rows, output.data.copy(), weights))
            return output

        layer.forward = forward  # type: ignore[method-assign]

    def _enter(self, inputs: tuple[Any, ...]) -> None:
        """Hear that a chain of layers is given something: rows of the batch, or what a layer before has made."""
        given = next((x for x in inputs if isinstance(x, np.ndarray | Tensor)), None)
        if given is None or (isinstance(given, Tensor) and given.node is not None):
            return
        array = given.data if isinstance(given, Tensor) else given
        self._rows, self._uses = None, {}
        if array.ndim and not (isinstance(given, Tensor) and given.requires_grad):
            rows = [self._keys.get(key, -1) for key in row_keys(array)]
            if -1 not in rows:
                self._rows = np.array(rows, np.int64)
                self.record.reads.append(self._rows)

    def _listen_to_parameter(self, name: str, parameter: Parameter) -> None:
        """Let the parameter be of a class of its own, which tells us; slots and memory stay as they are."""
        kind, recorder = type(parameter), self

        class Heard(kind):  # type: ignore[valid-type, misc]
            __slots__ = ()

            def updated(self, line: Any = None) -> None:
                kind.updated(self, line)
                recorder._updated(name, self)

            def accumulate(self, part: Any) -> None:
                recorder._contributes(name, self)
                kind.accumulate(self, part)

            def accumulate_direct(self, function: Any, g: Any) -> None:
                recorder._contributes(name, self)
                kind.accumulate_direct(self, function, g)

            def zero_grad(self) -> None:
                recorder._used_up.discard(name)
                kind.zero_grad(self)

        Heard.__name__ = kind.__name__
        parameter.__class__ = Heard

    def _contributes(self, name: str, parameter: Parameter) -> None:
        if name in self._used_up and parameter.grad_written and name not in self.record.stale:
            self.record.stale.append(name)

    def _updated(self, name: str, parameter: Parameter) -> None:
        record = self.record
        record.updates[name] = record.updates.get(name, 0) + 1
        if record.applied.get(name) is None:
            record.applied[name] = _gradient(parameter)
        self._used_up.add(name)

    # ---- a step

    def begin(self, inputs: np.ndarray) -> None:
        """Look at the weights before the step, and learn to know the rows of its batch."""
        self.record = Record(self.rank, start=self._weights())
        self._keys = {key: row for row, key in enumerate(row_keys(inputs))}
        self._rows, self._uses, self._depth = None, {}, 0

    def end(self, value: Any, messages: int) -> Record:
        """Look at everything after the step."""
        for sync in self.zeros:
            sync.finish()  # weights that are elsewhere come back to be looked at
        record = self.record
        for module in self.modules:
            for name, parameter in module.named_parameters():
                if parameter not in self.name_of:  # it was made during the step
                    self.parameters[name], self.name_of[parameter] = parameter, name
                    self._listen_to_parameter(name, parameter)
        record.end, record.messages, record.value = self._weights(), messages, value
        record.left = {name: _gradient(p) for name, p in self.parameters.items()}
        record.placements = {name: p.placement for name, p in self.parameters.items()}
        for number, optimizer in enumerate(self.optimizers):
            record.lr = optimizer.lr
            for slot, vectors in (optimizer._state or {}).items():
                for group, vector in enumerate(vectors):
                    place = f" of group {group}" if len(vectors) > 1 else ""
                    which = f" of optimizer {number}" if len(self.optimizers) > 1 else ""
                    record.state[f"{slot}{place}{which}"] = vector.copy()
        record.buffers = {
            name: array.copy() for name, array in self._arrays().items() if name in self._floats
        }
        return record

    def labels(self, labels: np.ndarray) -> None:
        """Hear which labels a loss was given."""
        self.record.labels.append((labels.copy(), len(self.record.calls)))

    def _weights(self) -> Arrays:
        return {name: p.array.copy() for name, p in self.parameters.items() if _here(p)}

    def _arrays(self) -> Arrays:
        return {
            f"{name}.{key}" if name else key: value
            for module in self.modules
            for name, layer in named_modules(module)
            for key, value in vars(layer).items()
            if isinstance(value, np.ndarray) and value.dtype.kind == "f"
        }


def _here(parameter: Parameter) -> bool:
    return parameter.array.flags.writeable


def _gradient(parameter: Parameter) -> np.ndarray | None:
    if not parameter.grad_written or parameter.gradient is None or not parameter.gradient.flags.writeable:
        return None
    return parameter.gradient.copy()
