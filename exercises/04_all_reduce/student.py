"""04 · All-reduce: every rank has a vector, and every rank gets the sum of all of them.

Read README.md first. `comm` has rank, size, send(x, dest), recv(out, source) and sendrecv(x, dest, out, source), and
nothing else. Give new arrays: x stays as it is.
"""

import numpy as np


def naive(comm, x):
    """04a: Let rank 0 collect all vectors, add them up, and send the sum to the others.

    x: vector, the same length on every rank. Returns the sum of all ranks' x.
    Rank 0 sends p-1 messages, every other rank one.
    """
    raise NotImplementedError("04a: naive")


def tree(comm, x):
    """04b: Add up in pairs at distance 1, 2, 4, ... until rank 0 has the sum; then hand it down the same way.

    Returns the sum of all ranks' x. No rank sends more than ceil(log2 p) + 1 messages, rank 0 one less. Any p.
    """
    raise NotImplementedError("04b: tree")


def reduce_scatter(comm, x):
    """04c: Pass chunks round the ring and add to them, until each rank has one chunk of the sum.

    Chunk c is np.array_split(x, p)[c]. Each rank sends to its right neighbour, rank + 1, and gets from its left one.
    Returns chunk (rank + 1) % p of the sum of all ranks' x. p-1 messages from each rank, of one chunk each.
    """
    raise NotImplementedError("04c: reduce_scatter")


def ring(comm, x):
    """04d: Do what 04c does, and then pass the finished chunks round the ring until every rank has them all.

    Returns the sum of all ranks' x. Each rank sends 2 (p-1) messages, of one chunk each.
    """
    raise NotImplementedError("04d: ring")
