# loses: test_reduce_scatter_leaves_one_chunk_of_the_sum, test_ring_gives_every_rank_the_sum, test_ring_works_with_fewer_numbers_than_ranks, test_ring_sends_two_vectors_at_most
# diagnosis: one step too few
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
    total = x.copy()
    if comm.rank == 0:
        theirs = np.empty_like(x)
        for source in range(1, comm.size):
            comm.recv(theirs, source)
            total += theirs
        for dest in range(1, comm.size):
            comm.send(total, dest)
    else:
        comm.send(x, 0)
        comm.recv(total, 0)
    return total


def tree(comm, x):
    """04b: Add up in pairs at distance 1, 2, 4, ... until rank 0 has the sum; then hand it down the same way.

    Returns the sum of all ranks' x. No rank sends more than ceil(log2 p) + 1 messages, rank 0 one less. Any p.
    """
    total, theirs = x.copy(), np.empty_like(x)
    distance = 1
    while distance < comm.size and comm.rank % (2 * distance) == 0:
        if comm.rank + distance < comm.size:
            comm.recv(theirs, comm.rank + distance)
            total += theirs
        distance *= 2
    if comm.rank:
        comm.send(total, comm.rank - distance)
        comm.recv(total, comm.rank - distance)
    while distance > 1:
        distance //= 2
        if comm.rank + distance < comm.size:
            comm.send(total, comm.rank + distance)
    return total


def reduce_scatter(comm, x):
    """04c: Pass chunks round the ring and add to them, until each rank has one chunk of the sum.

    Chunk c is np.array_split(x, p)[c]. Each rank sends to its right neighbour, rank + 1, and gets from its left one.
    Returns chunk (rank + 1) % p of the sum of all ranks' x. p-1 messages from each rank, of one chunk each.
    """
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    chunks = np.array_split(x, comm.size)
    passed = chunks[comm.rank]
    for step in range(comm.size - 2):
        mine = chunks[(comm.rank - step - 1) % comm.size]
        theirs = np.empty_like(mine)
        comm.sendrecv(passed, right, theirs, left)
        passed = theirs + mine
    return passed.copy()


def ring(comm, x):
    """04d: Do what 04c does, and then pass the finished chunks round the ring until every rank has them all.

    Returns the sum of all ranks' x. Each rank sends 2 (p-1) messages, of one chunk each.
    """
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    total = x.copy()
    chunks = np.array_split(total, comm.size)
    for step in range(comm.size - 2):
        have, get = (comm.rank - step) % comm.size, (comm.rank - step - 1) % comm.size
        theirs = np.empty_like(chunks[get])
        comm.sendrecv(chunks[have], right, theirs, left)
        chunks[get] += theirs
    for step in range(comm.size - 2):
        have, get = (comm.rank + 1 - step) % comm.size, (comm.rank - step) % comm.size
        comm.sendrecv(chunks[have], right, chunks[get], left)
    return total
