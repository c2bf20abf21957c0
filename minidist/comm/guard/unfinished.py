"""What is still open when the program has ended: messages that nobody received, requests that nobody waited for.

A small message is on its way at once, so a program with one `isend` too many ends well and proves nothing:

    rank 0 sent to rank 1, tag 5:  |||||      rank 1 took from rank 0, tag 5:  ||||      the last was never received

So each rank counts what it sends and what its receives take, on each communicator, for each peer and tag. Between two
ranks messages of one tag are taken in the order in which they were sent: the counts alone say which are left. They are
compared when all ranks have ended in good order (`ended` and `all_ended` of `events.py`); and before that for a rank
that waits, since a message under another tag may be the one it waits for (`recently_sent`, `unreceived`).

A message of minidist's own is counted, since the program may receive it, and never told.
Read next: `report.py`, how it is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minidist.comm.arrays import describe
from minidist.comm.core import ANY_SOURCE
from minidist.comm.events import Event, Listener, is_engines
from minidist.comm.guard import is_on, report
from minidist.comm.guard.graph import Sent

if TYPE_CHECKING:
    from minidist.comm.guard.requests import Requests
    from minidist.comm.message import Header

LAST = 16  # messages to one peer, under one tag, whose lines are kept
RECENT = 32  # peers and tags to which this rank has sent last, that others are told of
Key = tuple[str, str, int, int]  # communicator: name, key; the other's world rank; tag


@dataclass(frozen=True)
class Open:
    """Something that one rank has left open."""

    rank: int
    line: str
    words: str


class Unfinished(Listener):
    """Count the messages of one rank, and tell at the end what all ranks have left open."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.sent: dict[Key, list[Any]] = {}  # how many, and (line, what) of the last ones
        self.taken: Counter[Key] = Counter()

    def before(self, event: Event) -> None:
        """Count a message that is sent."""
        if event.operation not in ("send", "sendrecv"):
            return
        dest = event.peer if event.operation == "send" else event.dest
        assert dest is not None
        assert event.dtype is not None
        assert event.shape is not None
        key = _key(event, dest)
        count = self.sent[key] = self.sent.pop(key, [0])  # the last one is the latest
        count[0] += 1
        del count[1 : len(count) - LAST + 1]
        line = "" if is_engines() else event.line
        count.append((line, describe(event.dtype, event.shape)))

    def arriving(self, event: Event, header: Header, source: int) -> None:
        """Count a message that a receive has taken."""
        self.taken[_key(event, source)] += 1

    def recently_sent(self, me: int) -> list[Sent]:
        """Give what this rank has sent, the latest first; the program's messages only."""
        found = []
        for (name, key, dest, tag), (count, *last) in list(self.sent.items())[: -RECENT - 1 : -1]:
            line, what = last[-1]
            if line:
                found.append(Sent(me, dest, name, key, tag, count, line, what))
        return found

    def unreceived(self, sent: Iterable[Sent]) -> list[Sent]:
        """Give those of these messages to this rank that none of its receives has taken."""
        return [one for one in sent if one.count > self.taken[one.comm, one.key, one.source, one.tag]]

    def ended(self) -> Any:
        """Give this rank's counts and its open requests, as plain data, and begin anew."""
        said = {
            "sent": [[*key, *count] for key, count in self.sent.items()],
            "taken": [[*key, count] for key, count in self.taken.items()],
            "open": [[flight.call, flight.line, flight.peer] for flight in self.requests.never_waited()],
        }
        self.sent, self.taken = {}, Counter()
        self.requests.forget()
        return said

    def all_ended(self, said: list[Any]) -> None:
        """Tell what all ranks together have left open."""
        messages = never_received(said) if is_on("never received") else []
        told = {(message.rank, message.line) for message in messages}
        requests = [request for request in never_waited(said) if (request.rank, request.line) not in told]
        _tell(
            "never received",
            messages,
            "sent and never received",
            "Each message needs a receive on the other rank, with the same tag and on the same communicator.",
        )
        _tell(
            "never waited",
            requests if is_on("never waited") else [],
            "started and never waited for",
            "Keep what isend or irecv gives and call wait() on it: until then its array is still in use.",
        )


def _key(event: Event, other: int) -> Key:
    comm = event.communicator
    assert event.tag is not None
    return comm.name, str(comm.key), comm.members[other], event.tag


def never_received(said: list[Any]) -> list[Open]:
    """Give the program's messages that no receive has taken; said: what the ranks said, in order of world ranks."""
    taken = {
        (key, source, dest, tag): count
        for dest, words in enumerate(said)
        for _, key, source, tag, count in words["taken"]
    }
    found = []
    for source, words in enumerate(said):
        for name, key, dest, tag, count, *last in words["sent"]:
            left = count - taken.get((key, source, dest, tag), 0)
            for line, what in last[-left:] if left > 0 else []:
                on = "" if name == "world" else f" on {name!r}"
                if line:
                    found.append(
                        Open(source, line, f"rank {source} sent {what} to rank {dest} with tag {tag}{on}")
                    )
    return found


def never_waited(said: list[Any]) -> list[Open]:
    """Give the program's requests whose end it has never asked for."""
    found = []
    for rank, words in enumerate(said):
        for call, line, peer in words["open"]:
            whom = {None: "", ANY_SOURCE: " from any rank"}.get(
                peer, f" {'to' if call == 'isend' else 'from'} rank {peer}"
            )
            found.append(Open(rank, line, f"rank {rank}: {call}{whom}"))
    return found


def _tell(kind: str, found: list[Open], what: str, remedy: str) -> None:
    """Print one warning of all that was found."""
    if not found:
        return
    is_message = kind == "never received"
    noun = ("message" if is_message else "request") + "s" * (len(found) > 1)
    lines = []
    for one, times in Counter(found).items():
        often = f", {times} times" if times > 1 else ""
        lines.append(f"  {one.words}{often}   {report.source(one.line)}")
    text = f"{len(found)} {noun} {'were' if len(found) > 1 else 'was'} {what}:"
    ranks = sorted({one.rank for one in found})
    first = {one.rank: one.line for one in reversed(found)}
    report.warn(kind, "\n".join([text, *lines, remedy]), ranks, first)
