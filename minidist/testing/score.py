"""Points: what each test's runs on 1, 2, 3 ... ranks come to, as a table and as JSON.

    todo      a stub is still there            wrong     the answer is
    broken    the exercise itself failed       not run   another number of ranks had said enough

All or nothing: a test's points need every number of ranks (with `partial=True` each number above 1 has its share). One
rank alone earns nothing. The JSON file is the one source for every other form of grades:

    {"schema": "minidist/score/v1", "score": 4, "max_score": 12, "versions": {...}, "tests": [{"name": ..., ...}]}

Read next: `exercise.py`, which fills it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minidist.testing.diagnosis import Finding, diagnose

ORDER = ("broken", "wrong", "todo", "not run", "ok")  # the first that occurs is the test's


@dataclass(frozen=True)
class Exercise:
    """Hold what a mark says; for what it does not say, the file's `pytestmark` speaks."""

    points: int = 0
    ranks: tuple[int, ...] = (1, 2, 3, 4)
    timeout: float = 10.0  # seconds on a machine of usual speed
    group: str = "exercise"
    hint: str = ""
    offers: tuple[str, ...] = ()  # what the student's communicator can do besides rank and size
    forbids: tuple[str, ...] = ()  # modules that the student may not import
    partial: bool = False
    visibility: str = "visible"  # for Gradescope
    feedback: str = ""  # "name", "hint" or "diagnosis"; "": what the command line says

    def check(self) -> str:
        """Say what is wrong with this mark; "" if nothing is."""
        above = sum(size > 1 for size in self.ranks)
        if not self.ranks or any(type(size) is not int or size < 1 for size in self.ranks):
            return f"ranks must be numbers of at least 1, not {self.ranks!r}"
        if type(self.points) is not int or self.points < 0 or (self.points and not above):
            return f"points must be a whole number, and 0 where all runs on one rank, not {self.points!r}"
        if self.partial and self.points % above:
            return (
                f"partial=True shares points among {above} numbers of ranks: {self.points} is not divisible"
            )
        if self.feedback not in ("", "name", "hint", "diagnosis"):
            return f'feedback is "name", "hint" or "diagnosis", not {self.feedback!r}'
        return ""


@dataclass
class Test:
    """Collect how one test ended on each number of ranks."""

    __test__ = False  # pytest: this is no test

    name: str
    exercise: Exercise
    feedback: str
    ended: dict[int, str] = field(default_factory=dict)  # number of ranks -> ok, wrong, ...
    findings: dict[int, Finding | None] = field(default_factory=dict)  # of those that were wrong
    message: str = ""  # of the first that was not ok
    seconds: float = 0.0
    over: bool = False  # other numbers of ranks would tell nothing new, or take too long

    @property
    def status(self) -> str:
        """How it ended altogether."""
        ends = [self.ended.get(size, "not run") for size in self.exercise.ranks]
        return min(ends, key=ORDER.index)

    @property
    def points(self) -> int:
        """What it earned."""
        above = [size for size in self.exercise.ranks if size > 1]
        if self.exercise.partial:
            return self.exercise.points // len(above) * sum(self.ended.get(size) == "ok" for size in above)
        return self.exercise.points if self.status == "ok" else 0

    @property
    def hint(self) -> str:
        """The exercise's own hint, for who got it wrong."""
        return self.exercise.hint if self.status == "wrong" and self.feedback != "name" else ""

    @property
    def diagnosis(self) -> str:
        """Which known mistake this is, if it is one."""
        return diagnose(self.findings) if self.status == "wrong" and self.feedback == "diagnosis" else ""

    def as_json(self) -> dict[str, Any]:
        """Give its row."""
        return {
            "name": self.name,
            "group": self.exercise.group,
            "points": self.points,
            "max_points": self.exercise.points,
            "status": self.status,
            "message": self.message,
            "hint": self.hint,
            "diagnosis": self.diagnosis,
            "visibility": self.exercise.visibility,
            "seconds": round(self.seconds, 3),
        }


def write(path: Path, tests: Iterable[Test], versions: Mapping[str, str]) -> None:
    """Write all that is known so far; who reads meanwhile sees the old file or the new one."""
    rows = [test.as_json() for test in tests]
    content = {
        "schema": "minidist/score/v1",
        "score": sum(row["points"] for row in rows),
        "max_score": sum(row["max_points"] for row in rows),
        "versions": versions,
        "tests": rows,
    }
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(json.dumps(content, indent=1) + "\n")
    unfinished.replace(path)


def table(tests: Iterable[Test]) -> list[str]:
    """Return the lines of the terminal's table, group by group, with what helps below each test."""
    tests = list(tests)
    lines, group = [], ""
    width = max((len(test.name) for test in tests), default=0)
    for test in tests:
        if test.exercise.group != group:
            group = test.exercise.group
            of_group = [other for other in tests if other.exercise.group == group]
            lines.append(
                f"{group}: {sum(t.points for t in of_group)} of {sum(t.exercise.points for t in of_group)}"
            )
        lines.append(f"  {test.name:{width}}  {test.status:7}  {test.points} of {test.exercise.points}")
        lines += [f"      hint: {test.hint}"] if test.hint else []
        lines += [f"      {test.diagnosis}"] if test.diagnosis else []
    total, most = sum(test.points for test in tests), sum(test.exercise.points for test in tests)
    return [*lines, f"points: {total} of {most}"]
