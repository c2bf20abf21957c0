"""Who waits for whom, and which ranks can therefore never go on.

    rank 0 -- recv --> 1 -- recv --> 2 -- recv --> 0        a cycle: none of them ever sends
    rank 3 -- barrier --> 0, 1, 2                           waits for three that can never come

An operation waits for several messages at once, and goes on when *all* have come; a receive from any source, when
*one* has. An operation is stuck if a message that it needs can only come from a rank that is stuck, or has left. A
rank is stuck if it waits, and all that it has in flight is stuck: as long as one of its other operations can go on,
it may yet serve somebody. The stuck ranks are the largest set for which this holds; it is found by assuming that all
who wait are stuck, and taking away who is not, until nobody is left to take away.

A message is under way where both of its sides have been started: its receiver is not stuck. That nothing else is
under way is settled before anyone asks: on threads nothing ever is, on MPI see `listener.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Message:
    """One side of a message that is not complete. Ranks are the world's."""

    sending: bool
    peer: int | None  # None: any of the communicator's
    tag: int


@dataclass(frozen=True)
class Operation:
    """One operation of one rank that is not complete."""

    call: str
    comm: str  # the communicator's name
    key: str  # and what tells it from all others, on all ranks
    members: tuple[int, ...]
    line: str
    sequence: int | None = None
    peer: int | None = None  # world rank; -1: any
    tag: int | None = None
    what: str = ""  # dtype and shape, in words
    messages: tuple[Message, ...] = ()
    differs: bool = False  # its ranks call different things, and will soon be told so

    def words(self) -> str:
        """Name it as a report does."""
        if self.sequence is not None:
            return f"{self.call} #{self.sequence} on {self.comm!r}"
        other = "dest" if self.call.removeprefix("i") == "send" else "source"
        peer = "ANY_SOURCE" if self.peer == -1 else self.peer
        return f"{self.call}({other}={peer}, tag={self.tag}) on {self.comm!r}"


@dataclass(frozen=True)
class Sent:
    """Messages of the program from one rank to another under one tag. Ranks are the world's."""

    source: int
    dest: int
    comm: str  # the communicator's name, and its key
    key: str
    tag: int
    count: int
    line: str  # of the last one
    what: str


@dataclass(frozen=True)
class Standing:
    """What one rank does: "runs", "waits" in the first of its operations, or "left"."""

    rank: int
    state: str
    operations: tuple[Operation, ...] = field(default=())
    ago: float = 0.0  # seconds since it began to wait, or left
    sent: tuple[Sent, ...] = ()  # by this rank
    unreceived: tuple[Sent, ...] = ()  # to this rank, and taken by none of its receives

    @property
    def waits_in(self) -> Operation:
        """Give the operation in which a rank that waits does so."""
        return self.operations[0]


def from_plain(facts: Any) -> Operation:
    """Make an operation again of what `dataclasses.asdict` and JSON have made of it."""
    messages = tuple(Message(**message) for message in facts.pop("messages"))
    return Operation(**{**facts, "members": tuple(facts["members"]), "messages": messages})


def stuck(standings: Mapping[int, Standing]) -> set[int]:
    """Give the ranks that can never go on."""
    left = {rank for rank, standing in standings.items() if standing.state == "left"}
    suspects = {rank for rank, standing in standings.items() if standing.state == "waits"}
    while True:
        never = suspects | left
        free = {
            rank
            for rank in suspects
            if not all(is_stuck(rank, op, never, standings) for op in standings[rank].operations)
        }
        if not free:
            return suspects
        suspects -= free


def runs_behind(rank: int, standings: Mapping[int, Standing]) -> set[int]:
    """Give the ranks that run and that this one waits for, or those for which it waits, and so on."""
    seen: set[int] = set()
    ahead = {rank}
    while ahead:
        seen |= ahead
        waits = [
            standings[other] for other in ahead if other in standings and standings[other].state == "waits"
        ]
        messages = [message for standing in waits for op in standing.operations for message in op.messages]
        ahead = {message.peer for message in messages if message.peer is not None} - seen
    return {other for other in seen if other in standings and standings[other].state == "runs"} - {rank}


def is_stuck(rank: int, op: Operation, never: Collection[int], standings: Mapping[int, Standing]) -> bool:
    """Say whether a message that `op` of `rank` needs can only come from ranks that can `never` send it."""
    return any(lacks(rank, op, message, never, standings) for message in op.messages)


def lacks(
    rank: int, op: Operation, message: Message, never: Collection[int], standings: Mapping[int, Standing]
) -> bool:
    """Say whether this message will never be complete."""
    peers = [message.peer] if message.peer is not None else [other for other in op.members if other != rank]
    for peer in peers:
        if peer not in never:
            return False
        for theirs in standings[peer].operations if peer in standings else ():
            for other in theirs.messages:
                fits = other.peer in (rank, None) and other.sending != message.sending
                if fits and theirs.key == op.key and other.tag == message.tag:
                    return False  # under way
    return bool(peers)
