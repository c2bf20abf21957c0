"""A test's view of a student: calls that run on ranks, and a comparison that says what differs.

    got = student.call("all_reduce", [(x,) for x in vectors])       # by rank, plain arrays and numbers
    student.compare(got, [sum(vectors)] * student.size, wrong={"own part only": vectors})

The test runs in pytest's process; the student's code never does. A failure is one of two: `Todo` (a stub is still
there) or `Wrong`. Any other exception is the exercise's own fault.

Read next: `exercise.py`, the mark and the report.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minidist.launch.job import Job, Outcome
from minidist.launch.report import causes, explain
from minidist.testing import on_rank
from minidist.testing.diagnosis import Finding

CLOSE = 1e-9  # relative to the largest number; two orders of adding float64 differ by far less
SHOWN = 6  # numbers of an array that a message shows


class Todo(Exception):
    """Say that a function is still a stub."""


class Wrong(Exception):
    """Say what is wrong with an answer."""

    def __init__(self, message: str, finding: Finding | None = None, over: bool = False) -> None:
        super().__init__(message)
        self.finding = finding
        self.over = over  # the time was: there is no use in trying other numbers of ranks


@dataclass(frozen=True)
class Counted:
    """Count what one rank sent in one call of a student's function."""

    messages: int
    bytes: int
    calls: Mapping[str, int]  # of each thing that comm offers


class Student:
    """Run a student's functions on `size` ranks."""

    def __init__(
        self, size: int, job: Callable[[], Job], task: Callable[[str], on_rank.Task], limit: float
    ) -> None:
        """Take where to run, how to make a task of a function's name, and the seconds that all calls may take."""
        self.size = size
        self.counted: list[Counted] = []  # by rank, of the last call
        self._job, self._task, self._limit = job, task, limit
        self._until = time.monotonic() + limit
        self._where = ""  # of the function that was called last
        self._printed: list[str] = []

    def call(self, function: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run function(comm, *arguments[rank]) on every rank; return what each rank returned."""
        job, task = self._job(), self._task(function)
        left = max(0.1, self._until - time.monotonic())
        outcomes = job.call(on_rank.run_limited, (task, list(arguments)), ranks=self.size, timeout=left)
        return self.read(task, outcomes, job.transport)

    def read(self, task: on_rank.Task, outcomes: list[Outcome], transport: str) -> list[Any]:
        """Return what each rank returned; raise Todo or Wrong if one did not."""
        if any(outcome.type == "NotImplementedError" for outcome in outcomes):
            todo = next(outcome for outcome in outcomes if outcome.type == "NotImplementedError")
            raise Todo(todo.message.removeprefix("NotImplementedError: "))
        if any(outcome.ended != "returned" for outcome in outcomes):
            hung = causes(outcomes)[0].ended == "hung"
            raise Wrong(explain(outcomes, transport, self._limit), over=hung)
        values = [outcome.value for outcome in outcomes]
        self.counted = [Counted(value["messages"], value["bytes"], value["calls"]) for value in values]
        self._where = f"{task.function} ({task.path}:{values[0]['line']}), {self.size} ranks on {transport}"
        self._printed = [
            f"rank {outcome.rank} printed: {line}" for outcome in outcomes for line in outcome.output
        ]
        for rank, value in enumerate(values):
            if value["refused"]:
                self.fail(f"rank {rank}: {value['refused']}")
        return [value["value"] for value in values]

    def compare(
        self,
        got: Sequence[Any],
        right: Sequence[Any],
        wrong: Mapping[str, Sequence[Any]] | None = None,
        what: str = "it returned",
    ) -> None:
        """Raise Wrong unless every rank has what is right; all are lists by rank.

        wrong: {key in diagnosis.SENTENCES: what a known mistake would give}. Arrays must agree in shape and dtype;
        numbers within 1e-9 of the largest one.
        """
        for rank, (mine, expected) in enumerate(zip(got, right, strict=True)):
            if said := difference(mine, expected):
                keys = [key for key, values in (wrong or {}).items() if _same(got, values)]
                self.fail(f"rank {rank}: {what} {said}", Finding(frozenset(keys), _ratio(got, right)))

    def limit(
        self,
        sent: Sequence[int],
        most: Sequence[int],
        what: str,
        wrong: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Raise Wrong if a rank sent more of something than it should; all are lists by rank."""
        for rank, (mine, allowed) in enumerate(zip(sent, most, strict=True)):
            if mine > allowed:
                keys = [key for key, values in (wrong or {}).items() if list(sent) == list(values)]
                text = f"the result is right, but rank {rank} sent {mine} {what}, expected at most {allowed}"
                self.fail(text, Finding(frozenset(keys)))

    def fail(self, message: str, finding: Finding | None = None) -> None:
        """Raise Wrong with where the function stands and what the ranks printed."""
        raise Wrong("\n".join([f"{self._where}:", f"    {message}", *self._printed]), finding)


def difference(got: Any, right: Any) -> str:
    """Say how a value differs from the right one; "" if it does not."""
    if isinstance(right, tuple | list):
        kind = type(right).__name__
        if type(got) is not type(right) or len(got) != len(right):
            return f"{_brief(got)}, expected a {kind} of {len(right)} values"
        said = [
            (n, difference(mine, expected)) for n, (mine, expected) in enumerate(zip(got, right, strict=True))
        ]
        return next((f"as value {n} of the {kind} {text}" for n, text in said if text), "")
    if not isinstance(right, np.ndarray):
        if isinstance(got, np.ndarray) and got.shape == ():
            got = got.item()
        number = isinstance(got, int | float) and not isinstance(got, bool)
        return (
            "" if number and np.isclose(got, right, CLOSE, 0) else f"{_brief(got)}, expected {_brief(right)}"
        )
    if type(got) is not np.ndarray:
        return f"{_brief(got)}, expected {_brief(right)}"
    if got.shape != right.shape or got.dtype != right.dtype:
        return f"an array of {got.dtype} {got.shape}, expected {right.dtype} {right.shape}"
    scale = float(np.max(np.abs(right), initial=0.0))
    apart = ~(np.abs(got.astype(float) - right) <= CLOSE * scale)  # NaN is apart from everything
    if not apart.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(apart)[0])
    place = f"element [{', '.join(map(str, first))}]" if first else "its value"
    return (
        f"{_brief(got)}, expected {_brief(right)}: {place} is {got[first]:.6g}, not {right[first]:.6g} "
        f"({int(apart.sum())} of {right.size} differ)"
    )


def _same(got: Sequence[Any], other: Sequence[Any]) -> bool:
    """Tell whether all ranks have just these values."""
    return all(not difference(mine, theirs) for mine, theirs in zip(got, other, strict=True))


def _ratio(got: Sequence[Any], right: Sequence[Any]) -> float | None:
    """Give got / right if it is one number everywhere, on all ranks."""
    try:
        mine, theirs = (np.concatenate([np.ravel(value) for value in values]) for values in (got, right))
        kept = theirs != 0
        ratios = mine[kept] / theirs[kept]
        constant = ratios.size > 1 and np.allclose(ratios, ratios[0], CLOSE, 0) and not mine[~kept].any()
        return float(ratios[0]) if constant else None
    except (TypeError, ValueError, IndexError):  # tuples, None, other shapes
        return None


def _brief(value: Any) -> str:
    """Write a value in one line."""
    if not isinstance(value, np.ndarray):
        return f"{value:.6g}" if isinstance(value, float) else repr(value)[:60]
    if value.size <= SHOWN:
        return np.array2string(value, precision=4, separator=", ").replace("\n", "")
    flat = ", ".join(f"{number:.4g}" for number in value.ravel()[:SHOWN])
    return f"[{flat}, ...]"


def read_source(path: Path) -> str:
    """Read a student's file; a text that is none is told like any other mistake."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Wrong(f"{path} cannot be read: {error}") from None
