"""A cluster, as far as a training's time depends on it: machines, what each can compute, and the links.

    machine 0                       machine 1
    device  device  device          device  device  device       a rank on each, in order: the first machine first
       \\      |      /                 \\      |      /
        within: latency, bandwidth      within                    each rank has a port of its own
               card ----------- between ----------- card          all ranks of a machine share its cards: contention

A cluster is one of the names below, or a TOML file:

    nodes = 4                 # machines; left out: as many as the ranks need
    devices = 8               # cores or GPUs of each
    flops = 5e10              # floating-point operations a second that training reaches on one device
    memory = 1e10             # bytes a second between a device and its memory
    cards = 1                 # network cards of each machine
    background = false        # whether messages move while a rank computes: a card does that, MPI on a core does not
    summing = 4e9             # bytes a second of a vector that two ranks add up there; left out: as within
    shared_memory = true      # whether ranks of one machine sum in memory that all of them see
    [within]                  # one machine
    latency = 4e-6            # seconds
    bandwidth = 5e9           # bytes a second
    [between]                 # machines
    latency = 5e-5
    bandwidth = 1.17e8

Read next: `cost.py`, closed formulas for such a cluster; `simulate.py`, which plays programs on it.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from minidist.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Link:
    """A message of n bytes keeps its sender's and its receiver's port for n / bandwidth, and is there latency later."""

    latency: float = 0.0  # seconds
    bandwidth: float = math.inf  # bytes a second


@dataclass(frozen=True)
class Cluster:
    """Machines that are all alike. The fields are explained at the top of this file."""

    name: str
    devices: int
    flops: float
    memory: float
    within: Link
    between: Link
    nodes: int | None = None
    cards: int = 1
    background: bool = True
    shared_memory: bool = False
    summing: float | None = None

    def node(self, rank: int) -> int:
        """Say which machine a rank is on."""
        node = rank // self.devices
        return node if self.nodes is None else min(node, self.nodes - 1)

    def places(self, ranks: int) -> tuple[int, ...]:
        """Say it for so many ranks, as `Communicator.nodes` does: a machine's number is its first rank."""
        firsts: dict[int, int] = {}
        return tuple(firsts.setdefault(self.node(rank), rank) for rank in range(ranks))

    def crowding(self, ranks: int) -> float:
        """Say how much longer computing takes because ranks share devices: 1 where each has its own."""
        return max(1.0, max(Counter(self.places(ranks)).values()) / self.devices)


def _ethernet(name: str, latency: float, bandwidth: float) -> Cluster:
    own = Link(2e-6, 5e9)
    return Cluster(name, 4, 5e10, 1e10, own, Link(latency, bandwidth), background=False, shared_memory=True)


CLUSTERS = {
    cluster.name: cluster
    for cluster in (
        # Two cores, MPI through shared memory, as `python -m minidist.bench` measures them on such a machine.
        Cluster("laptop", 2, 4e10, 1e10, Link(2e-5, 4e9), Link(5e-5, 1.17e8), 1, 1, False, True),
        Cluster("shared-memory", 64, 4e10, 4e9, Link(1e-5, 4e9), Link(5e-5, 1.17e8), 1, 1, False, True),
        # What MPI gets of a wire: 944 of 1000 Mbit/s, and 96 of 100.
        _ethernet("ethernet-1g", 5e-5, 1.18e8),
        _ethernet("ethernet-100m", 1e-4, 1.2e7),
        # Imagined after the public data sheet of NVIDIA's DGX A100: 8 GPUs of 312 TFLOP/s in 16 bits (of which training
        # reaches 45 %) and 2 TB/s, NVLink 300 GB/s each way, 8 cards of 200 Gbit/s.
        Cluster("gpus", 8, 1.4e14, 2e12, Link(5e-6, 3e11), Link(5e-6, 2.5e10), cards=8),
    )
}


def find_cluster(name: str) -> Cluster:
    """Give the cluster of that name, or the one in that TOML file. Raises UserError if there is none."""
    if name in CLUSTERS:
        return CLUSTERS[name]
    path = Path(name)
    if not path.is_file():
        known = ", ".join(CLUSTERS)
        raise UserError(f"there is no cluster {name!r}: give one of {known}, or the path of a TOML file")
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{name} cannot be read as TOML: {error}") from error
    return from_plain({"name": path.stem, **plain}, name)


def from_plain(plain: Mapping[str, Any], where: str) -> Cluster:
    """Make a cluster of a table; what it leaves out is as in "laptop". where: what to call the table in a message."""
    facts = dict(plain)
    base = replace(CLUSTERS["laptop"], nodes=None)
    for name in ("within", "between"):
        if name in facts:
            if not isinstance(facts[name], Mapping):
                raise UserError(
                    f"{where}: {name} is {facts[name]!r}, expected a table with latency and bandwidth"
                )
            _check(facts[name], Link, f"{where}, [{name}]")
            facts[name] = replace(getattr(base, name), **facts[name])
    _check(facts, Cluster, where)
    return replace(base, **facts)


def _check(facts: Mapping[str, Any], kind: type, where: str) -> None:
    known = {field.name: str(field.type) for field in fields(kind)}
    for name, value in facts.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {close[0]}?" if close else f"expected some of {', '.join(known)}"
            raise UserError(f"{where}: there is no {name!r}, {meant}")
        expected = known[name]
        if expected.removesuffix(" | None") in ("float", "int"):
            whole = expected.startswith("int")
            number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
            if not number or not (value > 0 or (name == "latency" and value == 0)):
                what = "whole number from 1" if whole else "number above 0"
                raise UserError(f"{where}: {name} is {value!r}, expected a {what}")
        elif expected == "bool" and not isinstance(value, bool):
            raise UserError(f"{where}: {name} is {value!r}, expected true or false")
