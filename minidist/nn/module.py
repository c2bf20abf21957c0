"""Modules: a model is a tree of objects that own parameters.

    MLP                          model.named_parameters():
     +- layers[0]: Linear            layers.0.weight, layers.0.bias,
     +- layers[1]: Linear            layers.1.weight, layers.1.bias

A module sets its parameters and its parts as plain attributes (or in lists), *in the order in which it uses them*;
whatever needs the parameters walks the attributes. Weights are declared first and drawn later, by name: layer
`layers.1.weight` gets the same numbers whether it is built on one rank or on eight, before or after another layer.
Read next: `layers.py`; then `flat.py`, which moves all parameters into one vector.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidist.autograd import Parameter
from minidist.nn.placement import Placement
from minidist.random import normal


class Weight(Parameter):
    """A parameter that is declared by shape and gets its numbers from `Module.initialize`.

    std: standard deviation of the normal distribution to draw from; 0 fills with `mean`.
    """

    __slots__ = ("recipe",)

    def __init__(self, *shape: int, std: float = 0.0, mean: float = 0.0) -> None:
        # Not-a-number without memory: a model that was never initialised cannot pass for one that was.
        super().__init__(np.broadcast_to(np.float32(np.nan), shape))
        self.recipe = (mean, std)

    def draw(self, seed: int, name: str, dtype: Any) -> None:
        """Fill with the numbers that (seed, name) stand for, whatever else is drawn and by whom.

        Of a parameter that is spread over ranks, only this rank's elements are drawn.
        """
        mean, std = self.recipe
        if std:
            stretches = self.placement.stretches() if self.placement else [(0, self.size)]
            drawn_apart = [normal(seed, f"weight {name}", 0, *stretch) for stretch in stretches]
            values = mean + std * np.concatenate([*drawn_apart, np.empty(0)])
        else:
            values = np.full(self.size, mean)
        drawn = values.astype(dtype).reshape(self.shape)
        drawn_before = self.array.flags.writeable
        if drawn_before and self.dtype == drawn.dtype:
            self.data = drawn  # into the same memory, which may be a flat vector's
        elif self.bound:
            raise ValueError(
                f"{self.label} holds {self.dtype} in a flat vector and cannot become {drawn.dtype}: "
                "flatten the model after that"
            )
        else:
            self.bind(drawn)

    def place(self, placement: Placement) -> None:
        """Be this part of the parameter from now on; for a weight that is not drawn yet (else ValueError)."""
        if self.array.flags.writeable:
            raise ValueError(
                f"{self.label} is drawn already and cannot become a part of itself: declare the model with seed=None, "
                "spread it over ranks, and then call initialize(seed)"
            )
        self.placement = placement
        self.forget()

    def forget(self) -> None:
        """Give the memory back: be declared only, as at first."""
        here = self.placement.here if self.placement else self.shape
        self.array = np.broadcast_to(np.float32(np.nan), here)
        self.bound = False
        self.zero_grad()


@dataclass(frozen=True)
class Piece:
    """One of the pieces that a model applies one after another: `run` maps what the piece before gave.

    parts: the modules whose parameters it uses; a tied parameter belongs to several pieces.
    """

    run: Callable[[Any], Any]
    parts: tuple["Module", ...]

    def parameters(self) -> list[Parameter]:
        """List what this piece needs to have."""
        return [parameter for part in self.parts for parameter in part.parameters()]


class Module:
    """A part of a model: parameters, further parts, and a `forward` that uses them."""

    training = True

    def forward(self, *inputs: Any) -> Any:
        """Compute the outputs. Each kind of module has its own."""
        raise TypeError(f"{type(self).__name__} has no forward method; define forward(self, x)")

    def pieces(self) -> list[Piece]:
        """Say into which pieces the model can be cut for a pipeline; one after another they are `forward`."""
        return [Piece(self.forward, (self,))]

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, parameter or module) of what this module owns directly, in the order it was set."""
        for name, value in vars(self).items():
            if isinstance(value, list | tuple):
                yield from ((f"{name}.{i}", item) for i, item in enumerate(value) if _is_part(item))
            elif _is_part(value):
                yield name, value

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield every parameter once, with its dotted name, in order of first use; a shared one has its first name."""
        seen: set[int] = set()
        for name, parameter in self._walk(""):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

    def _walk(self, prefix: str) -> Iterator[tuple[str, Parameter]]:
        for name, part in self.parts():
            if isinstance(part, Module):
                yield from part._walk(f"{prefix}{name}.")
            else:
                yield prefix + name, part

    def parameters(self) -> list[Parameter]:
        """List every parameter once, in order of first use."""
        return [parameter for _, parameter in self.named_parameters()]

    def named_modules(self, name: str = "") -> Iterator[tuple[str, "Module"]]:
        """Yield this module, whose name is given, and all below it, with dotted names."""
        yield name, self
        for own, part in self.parts():
            if isinstance(part, Module):
                yield from part.named_modules(f"{name}.{own}" if name else own)

    def modules(self) -> Iterator["Module"]:
        """Yield this module and all below it."""
        return (module for _, module in self.named_modules())

    def initialize(self, seed: int | None = 0, dtype: Any = np.float32) -> "Module":
        """Draw all declared weights by their names; return the module itself.

        With seed None they stay declared, without memory, for somebody to say first which of them live here.
        """
        if seed is None:
            return self
        for name, parameter in self.named_parameters():
            if isinstance(parameter, Weight):
                parameter.draw(seed, name, dtype)
        return self

    def train(self, training: bool = True) -> "Module":
        """Switch to training behaviour (dropout drops), or with False to evaluation; return the module itself."""
        for module in self.modules():
            module.training = training
        return self

    def eval(self) -> "Module":
        """Switch to evaluation behaviour; return the module itself."""
        return self.train(False)


def _is_part(value: Any) -> bool:
    return isinstance(value, Parameter | Module)
