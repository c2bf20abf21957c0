"""The link between workers and servers: who is who, what a message says, how weights are cut into shards.

    Link(comm, workers=3)        rank 0   rank 1   rank 2   |  rank 3     rank 4
                                 worker   worker   worker   |  server 0   server 1

    one bucket of a worker's vectors     [ a b c d e ]    ->  server 0: a b c     server 1: d e

Server r has the r-th part of every bucket, so all servers have equally much to do whatever the layers' sizes are.
A worker says what it wants in a *note*, a few numbers; gradients and weights follow as messages of their own.
Read next: `server.py`, then `parameter_server.py`.
"""

from collections.abc import Sequence

import numpy as np

from minidist.comm import Communicator
from minidist.comm.arrays import cut
from minidist.errors import UserError
from minidist.nn.flat import Bucket

NOTE, DATA, REPLY = range(3)  # tags
# What a note asks for: to take one part of a gradient; to apply the gradient whose parts have come; to give weights; to
# go on without this worker; to save a checkpoint with all ranks.
PART, PUSH, PULL, LEAVE, SAVE = range(5)


def note(kind: int, number: int, *facts: float) -> np.ndarray:
    """Make a note: its kind, the number of the push that it is about, and for some kinds further facts.

    PART: which part. PUSH: the learning rate, what to multiply it by, what to multiply the gradient by. SAVE: after
    which step.
    """
    return np.array([kind, number, *facts, *[0.0] * (3 - len(facts))])  # (5,)


def blank_note() -> np.ndarray:
    """Give room for a note."""
    return np.empty(5)


class Link:
    """Join the workers, the first ranks of `comm`, and the servers, the others. A collective over all of them.

    peers: the communicator of the workers alone or, on a server, of the servers alone.
    """

    def __init__(self, comm: Communicator, workers: int) -> None:
        servers = comm.size - workers
        if workers < 1 or servers < 1:
            raise UserError(
                f"{comm.size} rank{'s' * (comm.size != 1)} cannot be {workers} worker{'s' * (workers != 1)} and "
                f"{servers} server{'s' * (servers != 1)}: leave at least one rank for each kind, or start more ranks"
            )
        self.comm, self.workers, self.servers = comm, workers, servers
        self.serves = comm.rank >= workers
        self.place = comm.rank - workers if self.serves else comm.rank  # among workers, or among servers
        peers = comm.split_by(lambda rank: int(rank >= workers), "servers" if self.serves else "workers")
        assert peers is not None, "every rank gave a color"
        self.peers = peers

    def parts(self, buckets: Sequence[Bucket], server: int) -> list[tuple[Bucket, slice]]:
        """List what a server has of a worker's buckets, as slices of the groups' vectors; empty ones left out."""
        found = []
        for bucket in buckets:
            start = bucket.region.start
            part = cut(bucket.region.stop - start, self.servers)[server]
            if part.stop > part.start:
                found.append((bucket, slice(start + part.start, start + part.stop)))
        return found
