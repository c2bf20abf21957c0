"""All-reduce over several machines: first within each machine, then between machines, then back.

    machine 0    0 <-- 1 <- 2, 3       0 (sum of 0 to 3)  <-->         0 --> 1 -> 2, 3
    machine 1    4 <-- 5 <- 6, 7       4 (sum of 4 to 7)  <-->         4 --> 5 -> 6, 7
                 up a tree             all-reduce of the first ranks    down the same tree

Within a machine numbers travel through memory, between machines through a cable that all its ranks share. The four
ways of `all_reduce.py` do not know that: recursive doubling sends each rank's vector over the cable, and so does the
ring where neighbours in rank are not neighbours in place. Here one vector leaves each machine, whatever its number of
ranks, and the way between the machines is chosen by its size as ever.

Cost for m machines with l ranks each and vectors of n bytes: over each machine's cable what an all-reduce of m ranks
sends, 2 (m-1)/m n bytes in 2 (m-1) messages for long vectors; within it 2 log2 l steps of n bytes. Long vectors pay
for the trees with time in which the cable is idle.

The sum is made once on the first ranks, alike on all, and then handed out: every rank ends with the same bytes. Which
rank is on which machine is found when the ranks start (`find_nodes`), so nobody has to say it.

Thakur, Rabenseifner & Gropp 2005, section 6, name it as what clusters of SMPs need; Goyal et al., "Accurate, Large
Minibatch SGD", 2017, section 4.2, train with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minidist.comm.all_reduce import ALGORITHMS, broadcast_tree, choose, reduce_tree
from minidist.comm.channel import Channel
from minidist.comm.progress import Steps

if TYPE_CHECKING:
    from minidist.comm.transport import TransportRequest


class Part(Channel):
    """Some of a channel's ranks, counted from 0: what an algorithm sees that is to run among these alone."""

    def __init__(self, channel: Channel, ranks: list[int]) -> None:
        super().__init__(channel.comm, channel.tag, channel.purpose)
        self.channel = channel
        self.ranks, self.rank, self.size = ranks, ranks.index(channel.rank), len(ranks)

    def send(self, array: np.ndarray, dest: int) -> TransportRequest:
        """Send to a rank of this part."""
        return self.channel.send(array, self.ranks[dest])

    def receive(self, buffer: np.ndarray, source: int) -> TransportRequest:
        """Receive from a rank of this part."""
        return self.channel.receive(buffer, self.ranks[source])


def two_level(channel: Channel, x: np.ndarray, reduce_two: np.ufunc) -> Steps:
    """Sum within each machine, then between the machines' first ranks, and hand the sum out."""
    nodes = channel.comm.nodes
    here = Part(channel, [rank for rank, node in enumerate(nodes) if node == nodes[channel.rank]])
    yield from reduce_tree(here, x, reduce_two, root=0)
    if here.rank == 0:
        firsts = Part(channel, first_ranks(nodes))
        yield from ALGORITHMS[choose(x.nbytes, firsts.size)](firsts, x, reduce_two)
    yield from broadcast_tree(here, x, root=0)


ALGORITHMS["two_level"] = two_level


def first_ranks(nodes: Sequence[int]) -> list[int]:
    """Give the first rank on each machine."""
    firsts: dict[int, int] = {}
    for rank, node in enumerate(nodes):
        firsts.setdefault(node, rank)
    return list(firsts.values())


def has_two_levels(nodes: Sequence[int]) -> bool:
    """Say whether there are several machines, and more ranks than machines."""
    return 1 < len(set(nodes)) < len(nodes)


def find_nodes(mpi: Any, everyone: Any) -> tuple[int, ...]:
    """Ask MPI which ranks can share memory; give each rank's machine, numbered by its first rank.

    A collective that waits inside MPI: for the start, where all ranks come at the same time anyway.
    """
    here = everyone.Split_type(mpi.COMM_TYPE_SHARED)
    first, table = np.array([everyone.Get_rank()]), np.empty(everyone.Get_size(), np.int64)
    here.Bcast(first)
    here.Free()
    everyone.Allgather(first, table)
    return tuple(table.tolist())
