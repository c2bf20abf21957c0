"""A mesh: the ranks of a communicator as a grid with named axes, and a communicator along each axis.

    Mesh(comm, data=2, pipe=2)         pipe=0   pipe=1
                             data=0    rank 0   rank 1
                             data=1    rank 2   rank 3

The last axis changes fastest, as in a C-ordered array. `mesh.comm("data")` joins the ranks that differ in `data`
alone: {0, 2} and {1, 3}; `mesh.comm("data", "pipe")` those that differ in either, which here are all four.

Part of an axis can have a name too: `mesh.name_part("ends", "pipe", (0, 3))` makes `mesh.comm("ends")` join the first
and the last of four stages, and `mesh.comm("data", "ends")` these of all replicas: those who share a tied weight.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from minidist.comm.communicator import Communicator
from minidist.errors import UserError


class Mesh:
    """Arrange the ranks of `comm` along named axes; the sizes' product must be comm.size.

    Every rank must make the mesh, and must call `comm` for joined axes in the same order. Axes of size 1 send nothing.
    """

    def __init__(self, comm: Communicator, **axes: int) -> None:
        check_axes(comm.size, axes)
        self.everyone, self.axes = comm, dict(axes)
        self.coordinates = coordinates(comm.rank, axes)
        self._comms: dict[tuple[str, ...], Communicator] = {}
        self._parts: dict[str, tuple[str, tuple[int, ...]]] = {}  # name -> axis, places along it
        for axis in axes:
            self.comm(axis)

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{axis}={size}' for axis, size in self.axes.items())})"

    def size(self, axis: str) -> int:
        """Give the number of ranks along an axis."""
        self._check((axis,))
        return self.axes[axis]

    def comm(self, *axes: str) -> Communicator:
        """Give the communicator of the ranks that differ from this one along `axes` alone.

        The first call for several axes is a collective over the whole mesh. Axes that join all ranks are the mesh's own
        communicator.
        """
        self._check(axes)
        known = (*self.axes, *self._parts)
        axes = tuple(axis for axis in known if axis in axes)  # in the mesh's order, as the ranks are
        if axes not in self._comms:
            name = "+".join(axes)
            if any(axis in self._parts for axis in axes):
                self._comms[axes] = self._join_part(axes, name)
            elif math.prod(self.axes[axis] for axis in axes) == self.everyone.size:
                self._comms[axes] = self.everyone
            elif math.prod(self.axes[axis] for axis in axes) == 1:
                self._comms[axes] = self.everyone.alone(name)
            else:
                new = self.everyone.split_by(lambda rank: group_number(rank, self.axes, axes), name)
                assert new is not None, "only a rank that gives no color gets none"
                self._comms[axes] = new
        return self._comms[axes]

    def replica(self) -> Communicator:
        """Give the communicator of the ranks that together hold one copy of the model: those with one place in "data".

        The first call is a collective over the whole mesh, if there are such axes.
        """
        axes = tuple(axis for axis in self.axes if axis != "data")
        if axes:
            return self.comm(*axes)
        if axes not in self._comms:
            self._comms[axes] = self.everyone.alone("replica")
        return self._comms[axes]

    def name_part(self, name: str, axis: str, places: tuple[int, ...]) -> None:
        """Let `name` stand for these places along an axis, in `comm`; a collective over the whole mesh.

        Its communicators, alone and joined with "data", are formed at once, and outside the part are of one rank.
        """
        self._check((axis,))
        if self._parts.setdefault(name, (axis, places)) != (axis, places) or name in self.axes:
            raise ValueError(f"{name!r} already stands for something else in {self}: take another name")
        # Now, since all ranks are here: later only those might ask for it that are in the part.
        self.comm(name)
        if "data" in self.axes and axis != "data":
            self.comm("data", name)

    def _join_part(self, axes: tuple[str, ...], name: str) -> Communicator:
        """Join the ranks of a part, over all the other axes named; who is not in it is alone."""
        parts = [self._parts.get(axis, (axis, tuple(range(self.axes.get(axis, 0))))) for axis in axes]

        def color(rank: int) -> int | None:
            places = coordinates(rank, self.axes)
            inside = all(places[whole] in those for whole, those in parts)
            return group_number(rank, self.axes, tuple(whole for whole, _ in parts)) if inside else None

        return self.everyone.split_by(color, name) or self.everyone.alone(name)

    def _check(self, axes: tuple[str, ...]) -> None:
        for axis in axes:
            if axis not in self.axes and axis not in self._parts:
                raise ValueError(
                    f"axis {axis!r} is not in {self}: expected one of {', '.join(map(repr, self.axes))}"
                )
        if not axes or len(set(axes)) < len(axes):
            raise ValueError(f"axes are {axes}, expected at least one name, each once")


def coordinates(rank: int, axes: dict[str, int]) -> dict[str, int]:
    """Give a rank's place along each axis, the last axis fastest."""
    places = np.unravel_index(rank, tuple(axes.values())) if axes else ()
    return {axis: int(place) for axis, place in zip(axes, places, strict=True)}


def group_number(rank: int, axes: dict[str, int], joined: tuple[str, ...]) -> int:
    """Number the groups of ranks that differ along `joined` alone: by their place along all the other axes."""
    number = 0
    for axis, place in coordinates(rank, axes).items():
        if axis not in joined:
            number = number * axes[axis] + place
    return number


def check_axes(ranks: int, axes: dict[str, int]) -> None:
    """Refuse sizes whose product is not the number of ranks, with the nearest choices that work."""
    for axis, size in axes.items():
        if not isinstance(size, int | np.integer) or size < 1:
            raise UserError(f"mesh axis {axis} is {size!r}, expected a whole number >= 1")
    total = math.prod(axes.values())
    if total == ranks:
        return
    asked = " x ".join(f"{axis}={size}" for axis, size in axes.items()) or "a mesh without axes"
    choices = [
        ",".join(f"{axis}={size}" for axis, size in zip(axes, sizes, strict=True))
        for sizes in nearest(ranks, axes)
    ]
    advice = f"; try {' or '.join(choices)}" if choices else ""
    raise UserError(f"{ranks} ranks cannot form {asked} ({total}){advice}, or start {total} ranks")


def nearest(ranks: int, axes: dict[str, int], most: int = 3) -> list[tuple[int, ...]]:
    """Give the sizes with product `ranks` that change the fewest axes, and those the least."""
    divisors = [d for d in range(1, ranks + 1) if ranks % d == 0]
    fitting = (
        [sizes for sizes in product(divisors, repeat=len(axes)) if math.prod(sizes) == ranks] if axes else []
    )
    wanted = tuple(axes.values())

    def distance(sizes: tuple[int, ...]) -> tuple[int, float]:
        changed = sum(size != want for size, want in zip(sizes, wanted, strict=True))
        return changed, sum(abs(math.log(size / want)) for size, want in zip(sizes, wanted, strict=True))

    return sorted(fitting, key=distance)[:most]
