"""The rule of bounded staleness, over long random histories, and planted faults in them."""

import random
from collections.abc import Iterator

import pytest

from minidist.errors import UserError
from minidist.sync.staleness import Clock, Event, violations


def simulate(clock: Clock, seed: int, events: int, leavers: int = 0) -> list[Event]:
    """Let workers of very unequal speed push and pull as fast as the clock lets them; one waits, others go on."""
    chance = random.Random(seed)
    workers = len(clock.pushes)
    speeds = [chance.uniform(0.1, 1) ** 3 for _ in range(workers)]
    asking: list[int] = []
    history: list[Event] = []

    def record(kind: str, worker: int) -> None:
        history.append(Event(kind, worker, clock.pushes[worker], clock.version))

    def answer() -> None:
        for worker in [worker for worker in asking if clock.may_pull(worker)]:
            asking.remove(worker)
            record("pull", worker)

    leaving = [events * (place + 1) // (leavers + 1) for place in range(leavers)]
    while len(history) < events:
        free = [worker for worker in clock.active if worker not in asking]
        assert free, "everybody waits"
        worker = chance.choices(free, [speeds[worker] for worker in free])[0]
        if leaving and len(history) > leaving[0] and len(clock.active) > 1:
            leaving.pop(0)
            clock.leave(worker, clock.pushes[worker])
            record("leave", worker)
        else:
            assert clock.push(worker, clock.pushes[worker] + 1)
            record("push", worker)
            asking.append(worker)
        answer()
    return history


@pytest.mark.parametrize(("slack", "events"), [(2, 100_000), (0, 10_000), (1, 10_000), (None, 10_000)])
def test_no_weights_are_too_old_in_100_000_events(slack: int | None, events: int) -> None:
    clock = Clock(5, slack)
    history = simulate(clock, 1, events, leavers=3)
    assert len(history) >= events
    assert violations(history, 5, slack) == []
    assert sum(event.kind == "leave" for event in history) == 3
    # The bound is reached, else the run has shown nothing.
    lags = [event.clock - event.version for event in history if event.kind == "pull"]
    assert max(lags) == slack if slack is not None else max(lags) > 100


class OffByOne(Clock):
    def may_pull(self, worker: int) -> bool:
        return self.slack is None or self.version >= self.pushes[worker] - self.slack - 1


class CountsTheFastest(Clock):
    def _advance(self) -> None:
        self.version = max((self.pushes[worker] for worker in self.active), default=self.version)


@pytest.mark.parametrize("slack", [0, 1, 3])
def test_a_rule_that_is_off_by_one_is_caught(slack: int) -> None:
    found = violations(simulate(OffByOne(5, slack), seed=2, events=10_000), 5, slack)
    assert found
    assert "was given version" in found[0]


def test_a_wrong_version_is_caught() -> None:
    found = violations(simulate(CountsTheFastest(3, 2), seed=3, events=1000), 3, 2)
    assert "the server calls version" in found[0]


def history(faults: str) -> Iterator[Event]:
    """Three good pushes of two workers, with a fault."""
    yield Event("push", 0, 1, 0)
    yield Event("push", 1, 1, 1)
    if faults == "twice":
        yield Event("push", 1, 1, 1)
    yield Event("pull", 1, 1, 1)
    if faults == "early":
        yield Event("leave", 1, 1, 1)
        yield Event("pull", 1, 1, 1)
    yield Event("push", 0, 3 if faults == "lost" else 2, 2 if faults == "early" else 1)
    if faults == "late":
        yield Event("leave", 0, 3, 1)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ("twice", "worker 1's push 1 was applied after its push 1"),
        ("lost", "worker 0's push 3 was applied after its push 1"),
        ("early", "worker 1 was given final weights while \\[0\\] still work"),
        ("late", "worker 0 leaves after 3 pushes, and not all were applied"),
    ],
)
def test_pushes_that_are_lost_or_applied_twice_are_caught(faults: str, words: str) -> None:
    assert violations(history(""), 2, 1) == []
    with pytest.raises(AssertionError, match=words):
        assert violations(history(faults), 2, 1) == []


def test_a_push_counts_once_and_in_order() -> None:
    clock = Clock(2, 1)
    assert [clock.push(0, 1), clock.push(0, 1), clock.push(0, 2)] == [True, False, True]
    assert (clock.pushes, clock.version) == ([2, 0], 0)
    with pytest.raises(ValueError, match="worker 0 went on and pushes number 4 after number 2"):
        clock.push(0, 4)
    with pytest.raises(ValueError, match="worker 0 leaves after 3 pushes, and 2 have come"):
        clock.leave(0, 3)
    clock.leave(0, 2)
    with pytest.raises(ValueError, match="worker 0 had left and pushes number 3"):
        clock.push(0, 3)


def test_who_has_left_is_not_waited_for() -> None:
    clock = Clock(3, 0)
    for worker in (0, 1):
        clock.push(worker, 1)
    assert not clock.may_pull(0)
    clock.leave(2, 0)
    assert clock.version == 1
    assert clock.may_pull(0)
    assert not clock.may_pull(2), "final weights only when all have left"
    clock.leave(0, 1)
    clock.leave(1, 1)
    assert all(clock.may_pull(worker) for worker in range(3))
    assert clock.version == 1


def test_a_negative_slack_is_refused() -> None:
    with pytest.raises(UserError, match=r"the slack is -1; expected .* 0 or more"):
        Clock(2, -1)
