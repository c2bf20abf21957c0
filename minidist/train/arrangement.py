"""Who does what: from `--mode`, or `--mesh`, `--sync` and `--servers`, to the place of every rank.

    --mode data               data=4                     every rank a whole model
    --mode model              tensor=4                   one model, its layers cut lengthwise
    --mode pipeline           pipe=4                     one model, its layers dealt out
    --mode averaging          data=4, --sync averaging
    --mode parameter-server   data=3, --sync parameter-server, --servers 1

A mode is a short name for an answer to each of the two questions; `--mesh data=2,pipe=2 --sync averaging` says them in
full. Nothing here talks to anybody: every rank works it out for itself. Read next: `setup.py`, which builds it.
"""

import argparse
from dataclasses import dataclass

from minidist.comm.mesh import check_axes
from minidist.errors import UserError

AXES = ("data", "pipe", "tensor")  # the last one fastest: neighbours talk most
SYNCS = ("data", "averaging", "parameter-server")
SPOKEN = {
    "data": "data parallel",
    "model": "model parallel",
    "pipeline": "pipeline parallel",
    "averaging": "model averaging",
    "parameter-server": "parameter server",
}
MODES = tuple(SPOKEN)


@dataclass(frozen=True)
class Arrangement:
    """Say how many ranks there are along each axis (data is always one), how replicas agree, and who only serves."""

    axes: dict[str, int]
    sync: str
    mode: str  # the short name, or "mesh" where there is none
    servers: int = 0  # the last ranks of the world

    @property
    def workers(self) -> int:
        """The ranks that are in the mesh: the first ones."""
        count = 1
        for size in self.axes.values():
            count *= size
        return count

    def describe(self) -> str:
        """Say it in a few words."""
        mesh = " x ".join(f"{axis}={size}" for axis, size in self.axes.items() if size > 1) or "one rank"
        words = SPOKEN.get(self.mode, "") or {"averaging": "model averaging"}.get(self.sync, self.sync)
        words = f"{words} ({mesh})" if self.mode in SPOKEN or self.sync != "data" else mesh
        return words + (f", {self.servers} server{'s' * (self.servers > 1)}" if self.servers else "")


def arrange(options: argparse.Namespace, ranks: int) -> Arrangement:
    """Find a place for every rank. Raises UserError, with what would fit, where there is none."""
    sync, servers = options.sync, options.servers
    if options.mode is not None and (options.mesh is not None or sync is not None):
        given = "--mesh" if options.mesh is not None else "--sync"
        raise UserError(
            f"--mode {options.mode} already says what {given} says: give --mode, or --mesh and --sync instead"
        )
    if sync is None:
        sync = options.mode if options.mode in SYNCS else "data"
    if sync == "parameter-server":
        servers = 1 if servers is None else servers
        if servers >= ranks:
            raise UserError(
                f"{ranks} rank{'s' * (ranks > 1)} cannot be {servers} server{'s' * (servers > 1)} and at least one "
                f"worker: start {servers + 1} ranks or more"
            )
    elif servers is not None:
        raise UserError(
            f"--servers {servers} belongs to --mode parameter-server; with --sync {sync} leave it out"
        )
    servers = servers or 0
    workers = ranks - servers
    if options.mesh is not None:
        axes = parse_mesh(options.mesh)
    else:
        axes = {{"model": "tensor", "pipeline": "pipe"}.get(options.mode, "data"): workers}
    check_axes(workers, axes)
    axes = {axis: axes.get(axis, 1) for axis in AXES if axis == "data" or axis in axes}
    mode = options.mode or ("data" if options.mesh is None and sync == "data" else "mesh")
    return Arrangement(axes, sync, mode, servers)


def parse_mesh(text: str) -> dict[str, int]:
    """Read "data=2,pipe=2"."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        axis, _, size = part.strip().partition("=")
        if axis not in AXES or not size.isdigit() or int(size) < 1 or axis in axes:
            raise UserError(
                f"--mesh is {text!r}; expected sizes for the axes {', '.join(AXES)}, each at most once, like "
                "--mesh data=2,pipe=2"
            )
        axes[axis] = int(size)
    return {axis: axes[axis] for axis in AXES if axis in axes}
