"""The other collectives, each written once in terms of send and receive.

With p ranks and n bytes in one rank's array, the messages and bytes that the busiest rank sends:

    barrier          dissemination       ceil(log2 p) messages, 0 bytes
    broadcast        binomial tree       ceil(log2 p) messages of n
    reduce           binomial tree       1 message of n
    gather           all to the root     1 message of n (the root receives p-1)
    scatter          the root to all     p-1 messages of a piece
    all_gather       ring                p-1 messages of a piece
    reduce_scatter   ring                p-1 messages of a piece
    all_to_all       pairwise            p-1 messages of a piece

Where a receiver cannot know a piece's size the message says it (`message.py`), so pieces may be uneven and no
counts are needed. All are generators (`progress.py`). Read `all_reduce.py` beside this.

Thakur, Rabenseifner & Gropp 2005, section 4; the barrier: Hensgen, Finkel & Manber 1988.
"""

from __future__ import annotations

import numpy as np

from minidist.comm.all_reduce import reduce_tree, ring_reduce_scatter, tree_neighbours
from minidist.comm.arrays import cut, describe, is_plain
from minidist.comm.channel import Channel, new_array
from minidist.comm.errors import MessageMismatch
from minidist.comm.message import Header
from minidist.comm.progress import Steps
from minidist.comm.reductions import working_dtype


def barrier(channel: Channel) -> Steps:
    """Wait until every rank has come: in step k tell rank + 2^k, and hear from rank - 2^k."""
    nothing, distance = np.empty(0, np.uint8), 1
    while distance < channel.size:
        dest, source = (channel.rank + distance) % channel.size, (channel.rank - distance) % channel.size
        yield channel.send(nothing, dest), channel.receive(np.empty(0, np.uint8), source)
        distance *= 2


def broadcast(channel: Channel, x: np.ndarray | None, given: np.ndarray | None, root: int) -> Steps:
    """Send the root's x down a binomial tree.

    `given`: the array that this rank's user gave, if it was one: on the root it is x, elsewhere it is filled.
    """
    parent, children = tree_neighbours(channel, root)
    header: Header | None = None

    def place(told: Header, sender: int) -> np.ndarray:
        nonlocal header
        header = told
        return given if given is not None and fits(header, given) else new_array(header, sender)

    if parent is not None:
        x, _ = yield from channel.receive_message(parent, place)
    assert x is not None
    yield [request for child in children for request in channel.send_message(x, child)]
    if given is None:
        return x
    if header is not None and x is not given:  # only now: the children are not to suffer for a refusal here
        refuse_mismatch(header, given, root)
        given[...] = x
    return given


def receive(channel: Channel, out: np.ndarray, source: int) -> Steps:
    """Fill `out` with a message from `source`; give the rank that it came from."""

    def place(header: Header, sender: int) -> np.ndarray:
        refuse_mismatch(header, out, sender, channel.tag)
        return out if fits(header, out) else new_array(header, sender)

    received, came_from = yield from channel.receive_message(source, place)
    if received is not out:
        out[...] = received
    return came_from


def fits(header: Header, out: np.ndarray) -> bool:
    """Say whether the memory of `out` can take a message's bytes as they are."""
    return header.dtype == out.dtype and header.shape == out.shape and is_plain(out)


def refuse_mismatch(header: Header, out: np.ndarray, source: int, tag: int | None = None) -> None:
    """Raise MessageMismatch, with both sides' facts, unless `out` has the message's dtype and shape."""
    if header.dtype != out.dtype.newbyteorder("=") or header.shape != out.shape:
        tagged = "" if tag is None else f" with tag {tag}"
        raise MessageMismatch(
            f"rank {source} sent {describe(header.dtype, header.shape)}{tagged}, this rank expected "
            f"{describe(out.dtype, out.shape)}: nothing was written"
        )


def reduce(channel: Channel, x: np.ndarray, reduce_two: np.ufunc, root: int) -> Steps:
    """Sum up a binomial tree; give the root the sum, the others None."""
    total = np.array(x, working_dtype(x.dtype))
    yield from reduce_tree(channel, total.reshape(-1), reduce_two, root)
    return total.astype(x.dtype, copy=False) if channel.rank == root else None


def gather(channel: Channel, x: np.ndarray, root: int) -> Steps:
    """Send every rank's x to the root, which joins them along axis 0."""
    if channel.rank != root:
        yield channel.send_message(x, root)
        return None
    pieces = {root: x}
    for source in range(channel.size):
        if source != root:
            pieces[source], _ = yield from channel.receive_message(source, new_array)
    return join([pieces[source] for source in range(channel.size)])


def scatter(channel: Channel, pieces: list[np.ndarray] | None, root: int) -> Steps:
    """Send piece r of the root's to rank r."""
    if pieces is None:
        piece, _ = yield from channel.receive_message(root, new_array)
        return piece
    others = [rank for rank in range(channel.size) if rank != root]
    yield [request for dest in others for request in channel.send_message(pieces[dest], dest)]
    return pieces[root].copy()


def all_gather(channel: Channel, x: np.ndarray, out: np.ndarray | None = None) -> Steps:
    """Pass every rank's x around a ring; all join them along axis 0, or find them in `out`, cut by `cut`.

    Pieces are received straight into the result as long as their sizes are as expected: in `out` as equal as they
    can be, else all of one shape.
    """
    rank, size = channel.rank, channel.size
    row = (1, *x.shape) if x.ndim == 0 else x.shape  # a 0-d value is one row
    result = np.empty((size * row[0], *row[1:]), x.dtype) if out is None else out
    expected = [result[piece] for piece in cut(len(result), size)]
    pieces: dict[int, np.ndarray] = {rank: x.reshape(row)}
    if pieces[rank].shape == expected[rank].shape:
        expected[rank][...] = x
        pieces[rank] = expected[rank]
    for step in range(size - 1):
        mine, next_ = pieces[(rank - step) % size], (rank - step - 1) % size

        def place(header: Header, sender: int, place_: np.ndarray = expected[next_]) -> np.ndarray:
            return place_ if fits(header, place_) else new_array(header, sender)

        pieces[next_] = yield from channel.exchange(mine, (rank + 1) % size, (rank - 1) % size, place)
    if all(pieces[source] is expected[source] for source in range(size)):
        return result
    joined = join([pieces[source] for source in range(size)])
    if out is None:
        return joined
    raise MessageMismatch(
        f"the ranks' pieces are {[len(pieces[source]) for source in range(size)]} rows, and out is "
        f"{describe(out.dtype, out.shape)}: give pieces that are as equal as {size} pieces of {len(out)} rows can be"
    )


def reduce_scatter(channel: Channel, x: np.ndarray, reduce_two: np.ufunc, pieces: list[slice]) -> Steps:
    """Pass partial sums around a ring; rank r ends with the sum of piece r."""
    values = x.astype(working_dtype(x.dtype), copy=False)
    chunks = [values[piece].reshape(-1) for piece in pieces]
    total = chunks[channel.rank].copy()
    yield from ring_reduce_scatter(channel, chunks, reduce_two, out=total)
    return total.reshape(x[pieces[channel.rank]].shape).astype(x.dtype, copy=False)


def all_to_all(channel: Channel, pieces: list[np.ndarray]) -> Steps:
    """Send piece r to rank r, in step k to rank + k while receiving from rank - k; join what came."""
    rank, size = channel.rank, channel.size
    received = {rank: pieces[rank]}
    for step in range(1, size):
        dest, source = (rank + step) % size, (rank - step) % size
        received[source] = yield from channel.exchange(pieces[dest], dest, source, new_array)
    return join([received[source] for source in range(size)])


def join(pieces: list[np.ndarray]) -> np.ndarray:
    """Join the ranks' pieces along axis 0 (a 0-d value is one row); refuse pieces that do not fit together."""
    rows = [piece.reshape(1) if piece.ndim == 0 else piece for piece in pieces]
    facts = [(row.dtype, row.shape[1:]) for row in rows]
    for source, fact in enumerate(facts):
        if fact != facts[0]:
            raise MessageMismatch(
                f"rank 0 gave {describe(pieces[0].dtype, pieces[0].shape)}, rank {source} gave "
                f"{describe(pieces[source].dtype, pieces[source].shape)}: pieces are joined along axis 0, "
                "so dtype and all other dims must be equal"
            )
    return np.concatenate(rows)
