"""Whether a message is under way between ranks that wait, by counting what was sent and what was taken.

    rank 0    has sent 3 messages to rank 1, tag 5      \\   one is under way: rank 1 will soon go on,
    rank 1    has taken 2 of them, and waits for one    /   though rank 0 waits and will send nothing more

Between two ranks the messages of one tag are taken in the order in which they were sent, so numbers are enough. Of a
collective the number of its call is: who has begun it has said so to all the others (`fingerprints.py`), and where all
have begun it, it will end. Ranks of one machine need none of this: there what is under way comes with the next look.

Read `letters.py` next, which gathers the counts.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from minidist.comm.events import Event, Listener
from minidist.comm.guard.graph import Message, Operation, Standing

if TYPE_CHECKING:
    from minidist.comm.message import Header

Key = tuple[str, int, int]  # a communicator's key, the other's world rank, tag


class Counts(Listener):
    """Count what one rank has begun, sent and taken."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}  # of each communicator: collectives
        self.sent: Counter[Key] = Counter()
        self.taken: Counter[Key] = Counter()

    def clear(self) -> None:
        """Begin anew."""
        self.begun = {}
        self.sent.clear()
        self.taken.clear()

    def before(self, event: Event) -> None:
        """Count an operation that begins."""
        comm = event.communicator
        if event.sequence is not None:
            self.begun[str(comm.key)] = event.sequence + 1
        dest = {"send": event.peer, "sendrecv": event.dest}.get(event.operation)
        if dest is not None and event.tag is not None:
            self.sent[str(comm.key), comm.members[dest], event.tag] += 1

    def arriving(self, event: Event, header: Header, source: int) -> None:
        """Count a message that a receive has taken."""
        comm = event.communicator
        assert event.tag is not None
        self.taken[str(comm.key), comm.members[source], event.tag] += 1

    def as_plain(self, wanted: Iterable[tuple[str, int | None]] | None = None) -> Any:
        """Give the counts as plain data. wanted: only those of these communicators and tags."""
        pairs = None if wanted is None else set(wanted)
        keys = None if pairs is None else {key for key, _ in pairs}
        return [
            {key: number for key, number in self.begun.items() if keys is None or key in keys},
            *(
                [
                    [*key, number]
                    for key, number in counter.items()
                    if pairs is None or (key[0], key[2]) in pairs
                ]
                for counter in (self.sent, self.taken)
            ),
        ]


def from_plain(told: Any) -> Counts:
    """Read what `as_plain` gave."""
    counts = Counts()
    counts.begun, sent, taken = told
    for counter, rows in ((counts.sent, sent), (counts.taken, taken)):
        counter.update({(key, other, tag): number for key, other, tag, number in rows})
    return counts


def without_under_way(standings: Mapping[int, Standing], counts: Mapping[int, Counts]) -> dict[int, Standing]:
    """Take the messages that will come out of what ranks wait for."""
    return {
        rank: dataclasses.replace(
            standing,
            operations=tuple(
                dataclasses.replace(
                    op,
                    messages=tuple(m for m in op.messages if not will_come(standing, op, m, counts)),
                )
                for op in standing.operations
            ),
        )
        for rank, standing in standings.items()
    }


def with_unreceived(standings: Mapping[int, Standing], counts: Mapping[int, Counts]) -> dict[int, Standing]:
    """Add to each rank what was sent to it and taken by none of its receives."""
    sent = [one for standing in standings.values() for one in standing.sent if one.dest in counts]
    left = [one for one in sent if one.count > counts[one.dest].taken[one.key, one.source, one.tag]]
    return {
        rank: dataclasses.replace(standing, unreceived=tuple(one for one in left if one.dest == rank))
        for rank, standing in standings.items()
    }


def will_come(standing: Standing, op: Operation, message: Message, counts: Mapping[int, Counts]) -> bool:
    """Say whether what this message lacks is under way already. counts: of all who will do nothing more."""
    rank = standing.rank
    peers = [message.peer] if message.peer is not None else [peer for peer in op.members if peer != rank]
    counted = [peer for peer in peers if peer in counts]
    if op.sequence is not None:
        return all(counts[peer].begun.get(op.key, 0) > op.sequence for peer in counted)
    if message.sending:
        return any(taken_unknown(standing, op, peer, counts) > 0 for peer in counted)
    if message.tag != op.tag:
        return True  # the second part of a large message, whose first has come
    assert op.tag is not None
    mine = counts[rank].taken
    return any(counts[peer].sent[op.key, rank, op.tag] > mine[op.key, peer, op.tag] for peer in counted)


def taken_unknown(standing: Standing, op: Operation, peer: int, counts: Mapping[int, Counts]) -> int:
    """Give how many messages of a rank, the like of which `op` sends, its peer has taken and it does not know so."""
    rank = standing.rank
    assert op.tag is not None
    pending = sum(
        (other.key, other.tag) == (op.key, op.tag)
        and any(m.sending and m.peer == peer for m in other.messages)
        for other in standing.operations
    )
    not_taken = counts[rank].sent[op.key, peer, op.tag] - counts[peer].taken[op.key, rank, op.tag]
    return pending - not_taken
