"""The verdict where ranks are threads: the hub asks for it, whenever a rank begins to wait, has waited long, or ends.

Everything is seen under the hub's lock and nothing is ever under way (`comm/hub.py`), so one look is enough.

Read `verdict.py` next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minidist.comm import guard
from minidist.comm.guard.describe import operations
from minidist.comm.guard.fingerprints import Agreement
from minidist.comm.guard.graph import Standing, stuck
from minidist.comm.guard.report import note
from minidist.comm.guard.verdict import judge

if TYPE_CHECKING:
    from minidist.comm.guard.unfinished import Unfinished
    from minidist.comm.hub import Hub


def join(hub: Hub, rank: int, unfinished: Unfinished) -> None:
    """Let the hub ask the guard, which knows from now on what this rank has sent and received."""
    with hub.lock:
        if not isinstance(hub.judge, Judge):
            hub.judge = Judge()
        hub.judge.unfinished[rank] = unfinished


class Judge:
    """The guard of all ranks of a hub."""

    def __init__(self) -> None:
        self.unfinished: dict[int, Unfinished] = {}

    def __call__(self, hub: Hub, long: bool) -> dict[int, Exception]:
        """Say whom to wake, and what each is to raise. Called under the hub's lock.

        As long as a rank runs, it may come to be stuck as well; so the others are
        judged only if they have waited `long`.
        """
        if not long and set(hub.waiting) != hub.living:
            return {}
        left = {
            rank for rank in range(len(hub.threads)) if rank not in hub.living and guard.is_on(guard.LEFT)
        }
        never = set(hub.waiting) | left
        for request in hub.waiting.values():  # quickly: it mostly is not
            if any(not p.done and (p.peer is None or p.peer in never) for p in request.pending):
                break
        else:
            return {}
        standings = {rank: Standing(rank, "runs") for rank in range(len(hub.threads))}
        sent = [
            one
            for rank, unfinished in self.unfinished.items()
            if rank in never
            for one in unfinished.recently_sent(rank)
        ]
        for rank, request in hub.waiting.items():
            in_flight = tuple(operations(request.event, request.communicator.progress.running))
            to_it = [one for one in sent if one.dest == rank]
            unreceived = tuple(self.unfinished[rank].unreceived(to_it)) if rank in self.unfinished else ()
            standings[rank] = Standing(rank, "waits", in_flight, unreceived=unreceived)
        for rank in left:
            standings[rank] = Standing(rank, "left")
        found = stuck(standings)
        if not found:
            return {}
        for rank in sorted(found):
            for pending in hub.waiting[rank].pending:
                if isinstance(pending, Agreement) and not pending.alike:
                    difference = pending.mismatch()
                    if difference is not None:
                        return dict.fromkeys(found, difference)
        error = judge(found, standings)
        note(error, 0.0)
        return dict.fromkeys(found, error)
