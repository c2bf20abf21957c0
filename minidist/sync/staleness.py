"""How old may weights be: the rule of the parameter server, as pure counting.

    pushes so far     worker 0: 7     worker 1: 5     worker 2: 6          version = 5: everybody's first 5 are in it
    slack 2           worker 0 may have its weights (5 >= 7 - 2), and would wait if it pushed once more

A worker's *clock* is the number of its pushes; the *version* of a server's weights is the clock that all workers have
reached. A worker at clock c may have weights of version c - slack or newer: with slack 0 of its own clock, which keeps
all in step; with None of any. (Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
Server", NIPS 2013, section 2.) Whoever has left is not waited for.

A server counts with `Clock` and can write down a history of `Event`s, and `violations` reads such a history and finds
every weight that was too old and every push that was lost or applied twice: by counting for itself.
Read next: `server.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from minidist.errors import UserError


@dataclass(frozen=True)
class Event:
    """One thing that happened at a server."""

    kind: str  # "push" was applied, "duplicate" was refused, "pull" was answered, "leave"
    worker: int
    clock: int  # push, duplicate: which of the worker's pushes, from 1; pull: how many it had made; leave: in the end
    version: int  # after the event; pull: of the weights given


class Clock:
    """Count the pushes of workers, and say who may have weights."""

    def __init__(self, workers: int, slack: int | None) -> None:
        check_slack(slack)
        self.slack = slack
        self.pushes = [0] * workers
        self.active = set(range(workers))
        self.version = 0  # the clock that all active workers have reached

    def push(self, worker: int, number: int) -> bool:
        """Hear of a worker's push, its `number`-th; say whether to apply it: one that was applied before is not."""
        if number > self.pushes[worker] + 1 or worker not in self.active:
            state = "went on" if worker in self.active else "had left"
            raise ValueError(
                f"worker {worker} {state} and pushes number {number} after number {self.pushes[worker]}: "
                "every push must come, once, in order, and none after leaving"
            )
        if number <= self.pushes[worker]:
            return False
        self.pushes[worker] = number
        self._advance()
        return True

    def may_pull(self, worker: int) -> bool:
        """Say whether the weights are new enough for this worker; for one that has left, whether they are final."""
        if worker not in self.active:
            return not self.active
        return self.slack is None or self.version >= self.pushes[worker] - self.slack

    def leave(self, worker: int, pushes: int) -> None:
        """Hear that a worker has made so many pushes and will make no more."""
        if pushes != self.pushes[worker]:
            raise ValueError(
                f"worker {worker} leaves after {pushes} pushes, and {self.pushes[worker]} have come: was one lost?"
            )
        self.active.discard(worker)
        self._advance()

    def _advance(self) -> None:
        self.version = min((self.pushes[worker] for worker in self.active), default=self.version)


def check_slack(slack: int | None) -> None:
    """Refuse a slack that means nothing."""
    if slack is not None and slack < 0:
        raise UserError(
            f"the slack is {slack}; expected the number of clocks that weights may be behind, 0 or more (0 keeps all "
            "workers in step), or none for no bound"
        )


def violations(history: Iterable[Event], workers: int, slack: int | None) -> list[str]:
    """Say what in a server's history breaks the rule; an empty list if nothing does."""
    found = []
    pushes: dict[int, int] = dict.fromkeys(range(workers), 0)  # of those who have not left
    newest = 0
    for place, event in enumerate(history):
        who = f"event {place}: worker {event.worker}"
        if event.kind == "push":
            if event.worker not in pushes:
                found.append(f"{who} pushes after it has left")
            elif event.clock != pushes[event.worker] + 1:
                found.append(f"{who}'s push {event.clock} was applied after its push {pushes[event.worker]}")
            else:
                pushes[event.worker] += 1
        elif event.kind == "leave" and pushes.pop(event.worker, None) != event.clock:
            found.append(f"{who} leaves after {event.clock} pushes, and not all were applied")
        newest = min(pushes.values(), default=newest)
        if event.kind == "pull":
            oldest = event.clock - slack if slack is not None else 0
            if event.worker not in pushes and pushes:
                found.append(f"{who} was given final weights while {sorted(pushes)} still work")
            elif event.worker in pushes and event.clock != pushes[event.worker]:
                found.append(
                    f"{who} pulls at clock {event.clock} after {pushes[event.worker]} pushes were applied"
                )
            elif event.worker in pushes and newest < oldest:
                found.append(
                    f"{who} at clock {event.clock} was given version {newest}, expected {oldest} or newer"
                )
        if event.version != newest:
            found.append(f"{who}: the server calls version {event.version} what is version {newest}")
    return found
