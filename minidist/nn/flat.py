"""Flat vectors: all parameters in one array, all gradients in another.

    layers, in order of use      embed      block.0       block.1      head
                                    \\           \\            /          /
    group.weights              [ head | block.1 ......... | block.0 ...... | embed ]
    group.gradients            [ head | block.1 ......... | block.0 ...... | embed ]
                                 ^ ready first, because backward begins at the loss

A parameter's array and its gradient are *views* into these two vectors. That is why nothing has to be packed
before it is sent: an all-reduce takes a slice of `gradients`, a bucket *is* a slice, and one call of an
optimizer kernel updates everything. The order is the reverse order of first use, so that gradients become ready
from the front (Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.3, which orders its buckets so).

Parameters that are treated alike share a vector, and form a *group*: same dtype, trainable or frozen, and
repeated over the same mesh axes. Most models have one group. Read next: `minidist/sync/data_parallel.py`.

Where ranks share the memory for weights or gradients among them, the vectors are not here: a stand-in without memory
takes their place, and a bucket's memory comes and goes (`Bucket.lend_weights`, `minidist/sync/zero.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidist import _kernels as kernels
from minidist.autograd import Parameter
from minidist.autograd.source import user_line
from minidist.nn.module import Module
from minidist.nn.placement import Placement

Allocate = Callable[..., np.ndarray]
LINE = 64  # bytes of a cache line


@dataclass(frozen=True)
class Entry:
    """Where one parameter lives: a row of the layout table."""

    name: str
    shape: tuple[int, ...]  # of what is here
    placement: Placement | None  # what part of the whole parameter that is; None: all of it
    offset: int  # of its first element in the group's vectors
    size: int  # elements held here
    place: int  # its position in the whole model's order of completion, over all groups

    def within(self, vector: np.ndarray, start: int) -> np.ndarray:
        """Give what a stretch of the group's vectors, from element `start` on, has of this parameter."""
        begin = self.offset - start
        return vector[max(0, begin) : max(0, begin + self.size)]


@dataclass(frozen=True)
class Bucket:
    """A slice of one group's vectors: whole parameters, next to each other, which are sent together."""

    index: int  # position in the order in which every rank launches buckets
    group: "Group"
    region: slice
    parameters: tuple[Parameter, ...]

    @property
    def size(self) -> int:
        return self.region.stop - self.region.start

    @property
    def weights(self) -> np.ndarray:
        return self.group.weights[self.region]

    @property
    def gradients(self) -> np.ndarray:
        assert self.group.gradients is not None, "frozen groups have no buckets"
        return self.group.gradients[self.region]

    def lend_weights(self, memory: np.ndarray | None) -> None:
        """Let the weights be in this memory, (size,), from now on; None: they are not here."""
        for parameter, view in self._views(memory):
            parameter.array = nowhere(parameter.shape, parameter.dtype) if view is None else view

    def lend_gradients(self, memory: np.ndarray | None) -> None:
        """Let the gradients be written to this memory, (size,); None: there is none until a lender is asked."""
        for parameter, view in self._views(memory):
            parameter.gradient, parameter.bound = view, True

    def _views(self, memory: np.ndarray | None) -> Iterator[tuple[Parameter, np.ndarray | None]]:
        offset = 0
        for parameter in self.parameters:
            stop = offset + parameter.size
            yield parameter, None if memory is None else memory[offset:stop].reshape(parameter.shape)
            offset = stop


class Group:
    """Parameters that are treated alike, in one vector.

    weights: (n,) all parameters of the group, in layout order.
    gradients: (n,) their gradients, or None for a frozen group: it travels only when replicas are first made equal.
    axes: the mesh axes over which a gradient is still a partial sum when backward ends.
    repeated: the mesh axes along which the other ranks of a replica hold the same parameters: a norm counts those
        of the first rank.
    """

    def __init__(
        self,
        parameters: dict[int, Parameter],  # by place
        axes: tuple[str, ...] = ("data",),
        repeated: tuple[str, ...] = (),
        allocate: Allocate = np.empty,
        filled: bool = True,
    ) -> None:
        self.parameters = tuple(parameters.values())
        self.axes, self.repeated = axes, repeated
        self.dtype = self.parameters[0].dtype
        self.trainable = self.parameters[0].requires_grad
        total = sum(parameter.size for parameter in self.parameters)
        self.weights = allocate(total, dtype=self.dtype)
        layout = []
        offset = 0
        for place, parameter in parameters.items():
            shape, size = parameter.shape, parameter.size
            layout.append(Entry(parameter.name, shape, parameter.placement, offset, size, place))
            weights = self.weights[offset : offset + size].reshape(shape)
            if filled:
                weights[...] = parameter.data
            parameter.bind(weights, None)
            offset += size
        self.layout = tuple(layout)
        self.gradients: np.ndarray | None = None
        if self.trainable:
            self.move_gradients(allocate)

    def move_gradients(self, allocate: Allocate) -> None:
        """Let the gradients live in memory from `allocate(n, dtype=...)`: in a vector that other ranks see, say."""
        room = allocate(self.weights.size + LINE // self.dtype.itemsize, dtype=self.dtype)
        first = best_start(self.layout, room)
        self.gradients = room[first : first + self.weights.size]
        for entry, parameter in zip(self.layout, self.parameters, strict=True):
            gradients = self.gradients[entry.offset : entry.offset + entry.size].reshape(parameter.shape)
            parameter.bind(parameter.array, gradients)

    def updated(self) -> None:
        """Note that the weights have changed, so that a tape which still needs the old ones is refused."""
        line = user_line()  # looked up once: for a small model it would be much of the update's time
        for parameter in self.parameters:
            parameter.updated(line)


def best_start(layout: Sequence[Entry], room: np.ndarray) -> int:
    """Say where in `room` a vector should begin, so that most of it belongs to parameters that begin a cache line.

    The gradient of a matrix is written in pieces as long as a line, and it takes longer where each lies across two:
    behind a last layer of 10 neurons, after whose bias no other parameter would begin a line, backward takes 8 % less
    (AVX-512). Across two pages it is worse, and memory that ranks share has small ones. Weights are copied before a
    product reads them, and gain nothing.
    """
    line = LINE // room.itemsize
    begins = kernels.address_of(room) // room.itemsize
    sizes = [0] * line
    for entry in layout:
        sizes[-(begins + entry.offset) % line] += entry.size
    return sizes.index(max(sizes))


def nowhere(shape: int | tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Stand in, without memory, for numbers that are not here: who reads them all the same finds not-a-number."""
    return np.broadcast_to(np.array(np.nan, dtype), shape)


def flatten(module: Module, allocate: Allocate = np.empty, filled: bool = True) -> list[Group]:
    """Move a model's parameters into flat vectors, one pair per group, and return the groups.

    filled=False leaves the numbers behind: for who looks at places and sizes alone, and has no memory for more.

    `allocate(n, dtype=...)` provides the memory, so that a window which other ranks see can be it. Modules
    list their parameters in order of first use; a shared parameter counts where it is used first.
    """
    alike: dict[tuple[Any, ...], dict[int, Parameter]] = {}
    for place, (name, parameter) in enumerate(reversed(list(module.named_parameters()))):
        parameter.name = name
        spread = parameter.placement
        axes = ("data", *spread.partial) if spread else ("data",)
        repeated = spread.repeated if spread else ()
        key = (parameter.dtype.str, parameter.requires_grad, axes, repeated)
        alike.setdefault(key, {})[place] = parameter
    return [
        Group(parameters, axes, repeated, allocate, filled)
        for (_, _, axes, repeated), parameters in alike.items()
    ]


def cut_into_buckets(groups: Sequence[Group], bytes_per_bucket: int) -> list[Bucket]:
    """Cut the gradients of all trainable groups into buckets of at least this many bytes (a group's last: less).

    A parameter is never cut, so a large one is a bucket of its own. Buckets are numbered in the order in which
    backward completes them, over all groups.
    """
    runs: list[tuple[Group, list[int]]] = []  # a group, and which rows of its layout
    for group in groups:
        if not group.trainable:
            continue
        full = True
        for row, entry in enumerate(group.layout):
            if full:
                runs.append((group, []))
                filled = 0
            runs[-1][1].append(row)
            filled += entry.size * group.dtype.itemsize
            full = filled >= bytes_per_bucket
    runs.sort(key=lambda run: run[0].layout[run[1][-1]].place)

    buckets = []
    for index, (group, rows) in enumerate(runs):
        first, last = group.layout[rows[0]], group.layout[rows[-1]]
        region = slice(first.offset, last.offset + last.size)
        buckets.append(Bucket(index, group, region, tuple(group.parameters[row] for row in rows)))
    return buckets
