"""What kind of fault it is that ranks are stuck, and how to tell it: pure functions of who stands where.

    communicator        they wait for each other on different communicators
    unmatched receive   a message has been sent to the receiver, under another tag or from another rank
    buffered send       a send waits for a receive that comes too late: small messages would have hidden it
    left                they wait for a rank that has finished
    missing rank        a collective that some rank does not call: it waits elsewhere
    cycle               each waits for a message of the next

Read `graph.py` first.
"""

from __future__ import annotations

from collections.abc import Mapping

from minidist.comm.errors import CommError, DeadlockError
from minidist.comm.guard.graph import Operation, Standing, stuck
from minidist.comm.guard.report import HEAD, name_ranks, short, source


def judge(ranks: set[int], standings: Mapping[int, Standing]) -> CommError:
    """Give the report of ranks that are stuck."""
    waits = {rank: standings[rank].waits_in for rank in sorted(ranks)}
    left = sorted(rank for rank, standing in standings.items() if standing.state == "left")
    kind, advice = classify(waits, standings, left)
    everyone = len(ranks) + len(left) == len(standings) and not left
    head = "no rank can go on (deadlock)." if everyone else f"{name_ranks(sorted(ranks))} can never go on."
    rows = [(f"rank {rank}", f"waits in {op.words()}", source(op.line)) for rank, op in waits.items()]
    width = max(len(doing) for _, doing, _ in rows)
    lines = [HEAD + head, *(f"  {who:8} {doing:{width}}   {where}" for who, doing, where in rows)]
    others = [rank for rank in standings if rank not in ranks and rank not in left]
    if left:
        lines.append(f"  {name_ranks(left)} finished the program normally")
    if others:
        lines.append(f"  {name_ranks(others)} {'is' if len(others) == 1 else 'are'} running")
    lines += advice
    awaited = {peer for op in waits.values() for peer in needed(op) & set(left)} if kind == "left" else set()
    where = {rank: op.line for rank, op in waits.items()}
    error = DeadlockError("\n".join(lines), kind, sorted(ranks | awaited), where)
    error.standings = dict(standings)
    return error


def needed(op: Operation) -> set[int]:
    """Give the ranks of whom an operation needs one, or all."""
    return set(op.members) if op.sequence is not None or op.peer in (-1, None) else {op.peer}


def classify(
    waits: Mapping[int, Operation], standings: Mapping[int, Standing], left: list[int]
) -> tuple[str, list[str]]:
    """Give the kind of the fault, and sentences that say what is wrong and what to look at."""
    collectives = {rank: op for rank, op in waits.items() if op.sequence is not None}
    elsewhere = {
        rank: [
            peer
            for peer in op.members
            if peer in waits
            and (peer not in collectives or (waits[peer].key, waits[peer].sequence) != (op.key, op.sequence))
        ]
        for rank, op in collectives.items()
    }
    for rank, op in waits.items():
        if (
            op.peer not in left
            and op.call.removeprefix("i") == "recv"
            and (found := unmatched(rank, op, standings))
        ):
            said = [f"Rank {rank} waits for {expected(op)}."]
            said += [f"There is a message for it that does not fit: {text}." for text in found]
            return "unmatched receive", [
                *said,
                "Source, tag and communicator must be the same on both sides.",
            ]
    keys = {op.key for op in collectives.values()}
    if len(keys) > 1 and len(collectives) > 1:
        for rank, peers in elsewhere.items():
            for peer in peers:
                if peer in collectives and waits[peer].key != waits[rank].key:
                    named = {waits[r].key: waits[r] for r in (rank, peer)}
                    said = [f"  {op.comm!r} joins {name_ranks(op.members)}" for op in named.values()]
                    return "communicator", [
                        f"Rank {rank} and rank {peer} wait for each other on different communicators:",
                        *said,
                        "All members of a communicator must call its collectives: is the right one used in both?",
                    ]
    gone = {rank: [peer for peer in peers_of(rank, op) if peer in left] for rank, op in waits.items()}
    if any(gone.values()):
        rank = next(rank for rank in waits if gone[rank])
        op = waits[rank]
        return "left", [
            f"Rank {rank} is in {op.words()}, and {name_ranks(gone[rank])} will not come any more.",
            f"Does {short(op.line)} run once too often on rank {rank}, or did the others leave their loop too early?",
        ]
    sends = [rank for rank, op in waits.items() if op.call.removeprefix("i") == "send"]
    if sends and len(sends) == len(waits):
        return "buffered send", [
            f"{name_ranks(sends).capitalize()} cannot end a send before its receiver has come to its receive.",
            "Without the guard a small message waits in a buffer, and the program works by luck; a large one does not.",
            "Let one side receive first, or use sendrecv, or isend and wait for it after the receive.",
        ]
    messages_only = {
        rank: standing if rank in waits and rank not in collectives else Standing(rank, "runs")
        for rank, standing in standings.items()
    }
    ring = sorted(stuck(messages_only))  # they are stuck by themselves, whatever the others do
    missing = {rank: peers for rank, peers in elsewhere.items() if peers}
    if missing and not ring:
        rank, peers = next(iter(missing.items()))
        op = waits[rank]
        inside = [
            r for r, other in collectives.items() if (other.key, other.sequence) == (op.key, op.sequence)
        ]
        return "missing rank", [
            f"{name_ranks(inside).capitalize()} {'is' if len(inside) == 1 else 'are'} in {op.words()}, which "
            f"{name_ranks(peers)} {'has' if len(peers) == 1 else 'have'} not called.",
            "Every rank must call every collective, in the same order. "
            f"Look at the condition around {short(op.line)}: is it true on some ranks only?",
        ]
    if ring and all(rank in sends for rank in ring):
        return "buffered send", [
            f"{name_ranks(ring).capitalize()} cannot end a send before its receiver has come to its receive.",
            "Let one side receive first, or use sendrecv, or isend and wait for it after the receive.",
        ]
    if any(rank in sends for rank in ring):
        return "cycle", [
            "Each waits for the next: a send returns when its receiver has come, a receive when its message has.",
            "Let one of them go first, or use sendrecv or isend.",
        ]
    return "cycle", [
        f"{name_ranks(ring or list(waits)).capitalize()} receive before they send, so none of them ever sends.",
        "Let one of them send first, or use sendrecv.",
    ]


def peers_of(rank: int, op: Operation) -> list[int]:
    """Give the ranks that an operation still needs."""
    peers: set[int] = set()
    for message in op.messages:
        peers |= set(op.members) - {rank} if message.peer is None else {message.peer}
    return sorted(peers)


def expected(op: Operation) -> str:
    """Say which message a receive waits for."""
    sender = "any rank" if op.peer in (-1, None) else f"rank {op.peer}"
    return f"a message from {sender} with tag {op.tag} on {op.comm!r}"


def unmatched(rank: int, op: Operation, standings: Mapping[int, Standing]) -> list[str]:
    """Say which messages to this rank, received by nobody, may be what its receive waits for.

    Those of the awaited rank under another tag or on another communicator. One of another rank, if it is the only one
    that would fit otherwise, or the awaited rank has sent the like to somebody else: where many have sent to us and
    the awaited one has sent nothing, it is he who is at fault.
    """
    near, astray = [], []
    for one in standings[rank].unreceived:
        alike = one.tag == op.tag and one.key == op.key
        if op.peer in (-1, None, one.source):
            near += [] if alike else [one]
        elif alike:
            astray.append(one)
    if astray and not near:
        elsewhere = [s for other in standings.values() for s in other.unreceived if s.source == op.peer]
        awaited = next((standing for standing in standings.values() if standing.rank == op.peer), None)
        waits_for_us = awaited is not None and any(
            op.sequence is None and message.peer == rank
            for op in awaited.operations
            for message in op.messages
        )
        if any(s.tag == op.tag for s in elsewhere) or (len(astray) == 1 and not waits_for_us):
            near = astray
    return [
        f"rank {one.source} sent {one.what} with tag {one.tag}"
        f"{'' if one.key == op.key else f' on {one.comm!r}'} at {source(one.line)}"
        for one in near
    ]
