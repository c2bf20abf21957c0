"""One line of a prediction: what a rank sends along some axes of the mesh, and for which purpose.

    rank 1 of data=2,pipe=2                              messages       bytes
    pipe    activation   gradients to the stage before          4     524,288
    data    gradient     12 buckets, summed                    12   1,586,176
    all     control      the loss                               2          16

A line comes from the rules of the part that sends, applied to sizes, never from a counter. So where the counters of a
run differ, the program does something else than its description says; tests compare the two in every mode.
Read next: `splits.py` and `syncs.py`, where the lines come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minidist.comm import Communicator
from minidist.plan import traffic
from minidist.plan.traffic import Traffic


@dataclass(frozen=True)
class Sent:
    """One line: what a rank sends along some axes for one purpose, each time that something happens."""

    axes: str
    purpose: str
    what: str
    traffic: Traffic


def all_reduced(comm: Communicator, n: int, itemsize: int, algorithm: str | None = None) -> Traffic:
    """Say what this rank sends in an all-reduce of n numbers."""
    return traffic.all_reduce(n, itemsize, comm.rank, comm.size, algorithm, comm.nodes)


def by_purpose(lines: Iterable[Sent]) -> dict[str, Traffic]:
    """Add up, as a communicator's counters do."""
    totals: dict[str, Traffic] = {}
    for line in lines:
        totals[line.purpose] = totals.get(line.purpose, Traffic()) + line.traffic
    return {purpose: total for purpose, total in totals.items() if total.messages}
