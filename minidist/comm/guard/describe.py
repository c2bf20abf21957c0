"""What a rank has in flight, as plain data that other ranks can read.

Read `graph.py` next: what is concluded from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minidist.comm.arrays import describe
from minidist.comm.guard.fingerprints import Agreement
from minidist.comm.guard.graph import Message, Operation

if TYPE_CHECKING:
    from minidist.comm.events import Event
    from minidist.comm.progress import Request


def operations(event: Event | None, running: list[Request]) -> list[Operation]:
    """Describe all that a rank has in flight; first what it waits for."""
    ordered = sorted(running, key=lambda request: request.event is not event)
    return [describe_request(request) for request in ordered]


def describe_request(request: Request) -> Operation:
    """Describe an operation as plain data, with world ranks."""
    comm, event, facts = request.communicator, request.event, request.facts
    messages = tuple(
        Message(pending.sending, pending.peer, pending.tag)
        for pending in request.pending
        if not pending.done and not isinstance(pending, Agreement)
    )
    peer = facts.get("peer")
    dtype, shape = facts.get("dtype"), facts.get("shape")
    return Operation(
        call=event.call if event else request.operation,
        comm=comm.name,
        key=str(comm.key),
        members=comm.members,
        line=event.line if event else "?",
        sequence=facts.get("sequence"),
        peer=comm.members[peer] if peer is not None and peer >= 0 else peer,
        tag=facts.get("tag"),
        what="" if dtype is None or shape is None else describe(dtype, shape),
        messages=messages,
        differs=any(
            isinstance(p, Agreement) and not p.alike and p.mismatch() is not None for p in request.pending
        ),
    )
