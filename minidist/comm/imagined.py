"""An imagined communicator: this process is any rank of any number, and every other rank does just what it does.

    comm = imagined(rank=700, size=1024, nodes=nodes)       starts nothing, sends nothing, counts nothing

Everything that a training builds before its first step (the mesh, a stage, buckets, shards) depends on a rank's place
alone. So on such a communicator one process can build what any rank of a large job would have, ask what it will send
and hold, and let a simulator play it. A collective gives what it would if all ranks had given the same as this one; a
message goes nowhere, and none ever comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from minidist.comm.arrays import as_array
from minidist.comm.communicator import Communicator
from minidist.comm.errors import NotShared
from minidist.comm.progress import Request, Steps


class Nowhere:
    """A message that is never complete, or has gone at once."""

    peer: int | None = None
    source, count = -1, 0

    def __init__(self, done: bool) -> None:
        self.done = done

    def test(self) -> bool:
        """Say which."""
        return self.done


class ImaginedEndpoint:
    """A rank's door to nobody."""

    transport = "imagined"
    largest_tag = 1 << 20
    payload_tags = collective_tags = range(1 << 20, 1 << 21)
    looks = 1

    def __init__(self, rank: int, members: Sequence[int], nodes: Sequence[int], shares: bool) -> None:
        self.rank, self.size, self.shares = rank, len(members), shares
        self.members, self.nodes = tuple(members), tuple(nodes)

    def isend(self, array: np.ndarray, dest: int, tag: int, synchronous: bool = False) -> Nowhere:
        """Send to nobody."""
        return Nowhere(True)

    def irecv(self, buffer: np.ndarray, source: int, tag: int, exact: bool) -> Nowhere:
        """Wait for what will not come."""
        return Nowhere(False)

    def share(self, comm: Any, stretch: int) -> np.ndarray:
        """Give memory in which all ranks see the same: (ranks, stretch)."""
        if not self.shares:
            raise NotShared("ranks of this cluster share no memory")
        own = np.zeros(stretch, np.uint8)
        return np.lib.stride_tricks.as_strided(own, (self.size, stretch), (0, 1))

    def idle(self, *_: Any) -> None:
        """Refuse to wait for ever."""
        raise RuntimeError("an imagined rank waits for a message, and none will ever come")

    def alone(self) -> ImaginedEndpoint:
        """Give a door to nobody at all."""
        return ImaginedEndpoint(0, (self.members[self.rank],), (0,), self.shares)


class Imagined(Communicator):
    """A communicator whose other ranks give to every collective what this one gives."""

    def split_by(self, color_of: Callable[[int], int | None], name: str) -> Communicator | None:
        color = color_of(self.rank)
        here = [rank for rank in range(self.size) if color_of(rank) == color]
        if color is None:
            return None
        nodes = [self.nodes[rank] for rank in here]
        firsts = [nodes.index(node) for node in nodes]
        members = [self.members[rank] for rank in here]
        endpoint = ImaginedEndpoint(here.index(self.rank), members, firsts, cast(Any, self.endpoint).shares)
        return Imagined(cast(Any, endpoint), name, self)

    def alone(self, name: str) -> Communicator:
        return Imagined(self.endpoint.alone(), name, self)

    def _collective(
        self,
        operation: str,
        steps: Callable[..., Steps],
        purpose: str,
        array: np.ndarray | None = None,
        **facts: Any,
    ) -> Request:
        """Be done at once."""

        def result() -> Steps:
            yield ()
            if operation == "allocate_shared":  # all ask for the same
                return np.zeros((self.size, 2), np.int64)
            if operation == "all_gather":
                return np.concatenate([np.atleast_1d(as_array(array))] * self.size)
            return array

        return self.progress.start(Request(self, operation, result(), facts))


def imagined(rank: int, size: int, nodes: Sequence[int], shares: bool = True) -> Communicator:
    """Imagine to be this rank of so many.

    nodes: which machine each rank is on, numbered by its first rank. shares: whether ranks of one share memory.
    """
    return Imagined(cast(Any, ImaginedEndpoint(rank, range(size), nodes, shares)), "world")
