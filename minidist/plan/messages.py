"""From a collective to its messages: the very algorithms of `comm/`, on a channel that notes sizes and sends nothing.

    Collect("all_reduce", members, n, ...)  ->  ring(channel, x, add), where x is n numbers that take no memory

The algorithms never look at numbers, so it does not matter that there are none. Only the sum in shared memory, which
sends nothing, is described here once more: two meetings, and between them the reading and writing.
Read next: `simulate.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from minidist.comm import collectives
from minidist.comm.all_reduce import ALGORITHMS, broadcast_tree, choose, ring_all_gather, ring_reduce_scatter
from minidist.comm.arrays import cut
from minidist.comm.channel import Channel
from minidist.comm.two_level import has_two_levels
from minidist.plan.acts import Collect

if TYPE_CHECKING:
    from minidist.plan.events import Pending, Strand
    from minidist.plan.simulate import Player


def name_of(tag: Hashable) -> str:
    """Say in words what a message is, as its tag tells it."""
    return " ".join(map(str, tag)) if isinstance(tag, tuple) else str(tag)


class Members:
    """What a channel sees of a communicator, and of its endpoint: ranks are those of the collective."""

    def __init__(self, player: Player, strand: Strand, act: Collect, nodes: Sequence[int]) -> None:
        self.player, self.strand, self.act = player, strand, act
        self.members = act.members
        self.rank, self.size = act.members.index(strand.rank), len(act.members)
        self.nodes = tuple(nodes[member] for member in act.members)
        self.endpoint = self

    def count(self, purpose: str, nbytes: int, messages: int = 1) -> None:
        """The player counts by itself."""

    def isend(self, array: np.ndarray, dest: int, tag: Hashable, synchronous: bool = False) -> Pending:
        """Send as many bytes as the array would have."""
        return self.player.send(self.strand, self.members[dest], array.nbytes, tag)

    def irecv(self, buffer: np.ndarray, source: int, tag: Hashable, exact: bool) -> Pending:
        """Wait for a message."""
        return self.player.receive(self.strand, self.members[source], tag)

    def in_shared_memory(self, x: np.ndarray) -> Iterable[Any]:
        """Sum in memory that all see: meet, read this rank's piece of all others and write it there, meet."""
        player, rank, size = self.player, self.rank, self.size
        link = player.cluster.within
        mine = cut(x.size, size)[rank]
        nbytes = (mine.stop - mine.start) * x.itemsize
        yield (player.meet(self.strand, size, (self.act.tag, "ready"), link.latency),)
        for other, member in enumerate(self.members):
            if other != rank:
                player.sent[self.strand.rank, member] += 2 * nbytes  # a read and a write
        speed = player.cluster.summing or link.bandwidth
        yield (player.after(self.strand, 2 * (size - 1) * nbytes / speed),)
        yield (player.meet(self.strand, size, (self.act.tag, "done"), link.latency),)


class Noting:
    """Stands in for a communicator of which one rank's messages are only listed."""

    def __init__(self, act: Collect, rank: int, nodes: Sequence[int]) -> None:
        self.act, self.nodes, self.endpoint = act, nodes, self
        self.rank, self.size = act.members.index(rank), len(act.members)
        self.sent: list[tuple[int, int]] = []

    def count(self, purpose: str, nbytes: int, messages: int = 1) -> None:
        """It is listed below."""

    def isend(self, array: np.ndarray, dest: int, tag: Hashable, synchronous: bool = False) -> None:
        """List a message."""
        self.sent.append((self.act.members[dest], array.nbytes))

    def irecv(self, buffer: np.ndarray, source: int, tag: Hashable, exact: bool) -> None:
        """Nobody waits."""

    def in_shared_memory(self, x: np.ndarray) -> Iterable[Any]:
        """List a read and a write of this rank's piece for each other rank."""
        mine = cut(x.size, self.size)[self.rank]
        others = [member for other, member in enumerate(self.act.members) if other != self.rank]
        self.sent += [(member, (mine.stop - mine.start) * x.itemsize) for member in others for _ in range(2)]
        return ()


def sent_by(act: Collect, rank: int, nodes: Sequence[int]) -> list[tuple[int, int]]:
    """List what one member sends in a collective, (world rank, bytes) of each message; nodes: of each member."""
    noting = Noting(act, rank, nodes)
    for _ in steps_of(act, Channel(cast(Any, noting), cast(Any, act.tag), "user")):
        pass
    return noting.sent


def numbers(n: int, itemsize: int) -> np.ndarray:
    """Give n numbers that take no memory."""
    return np.broadcast_to(np.zeros((), f"V{itemsize}"), n)


def _add(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    return out


def _tell(channel: Channel, x: np.ndarray) -> Iterator[list[Any]]:
    """Send the same to every other rank, and hear from all of them."""
    others = [rank for rank in range(channel.size) if rank != channel.rank]
    sends = [channel.send(x, other) for other in others]
    yield [*sends, *(channel.receive(x, other) for other in others)]


def algorithm_of(act: Collect, nodes: Sequence[int]) -> str:
    """Say how an all-reduce goes: as asked for, or as a communicator would choose."""
    if act.algorithm is None and has_two_levels(nodes):
        return "two_level"
    return act.algorithm or choose(act.n * act.itemsize, len(set(nodes)))


def steps_of(act: Collect, channel: Channel) -> Any:
    """Give the steps of one member of a collective."""
    comm = cast(Any, channel.comm)
    x, add = numbers(act.n, act.itemsize), cast(np.ufunc, _add)
    pieces = [x[piece] for piece in cut(act.n, channel.size)]
    ways: dict[str, Callable[[], Any]] = {
        "reduce_scatter": lambda: ring_reduce_scatter(channel, pieces, add, out=pieces[channel.rank]),
        "all_gather": lambda: ring_all_gather(channel, pieces),
        "broadcast": lambda: broadcast_tree(channel, x, root=0),
        "barrier": lambda: collectives.barrier(channel),
        "tell": lambda: _tell(channel, x),
    }
    if act.operation in ways:
        return ways[act.operation]()
    algorithm = algorithm_of(act, comm.nodes)
    if algorithm == "shared":
        return comm.in_shared_memory(x)
    return ALGORITHMS[algorithm](channel, x, add)
