"""Exercises: tests that run a student's functions on ranks, and tell which mistake was made.

    @pytest.mark.exercise(points=3, ranks=[1, 2, 3, 4], timeout=8, group="ring", hint="...", offers=["send", "recv"])
    def test_every_rank_gets_the_sum(student):
        got = student.call("all_reduce", [(np.ones(7),)] * student.size)
        student.compare(got, [np.full(7, float(student.size))] * student.size)

One item for each number of ranks (`test_every_rank_gets_the_sum[3]`), on MPI where it is installed. `student.py` is
looked for beside the test, wherever pytest was started. The ranks stay for the next test, unless one of them hangs,
dies or floods the disk. Limits are stretched on a slow machine by what the first start of ranks took.

Read next: `student.py` (what a test can ask), `score.py` (points), `diagnosis.py` (known mistakes).
"""

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from minidist.launch import Job
from minidist.testing import on_rank, score
from minidist.testing.debugged import Debugged
from minidist.testing.on_rank import Task
from minidist.testing.score import Exercise, Test
from minidist.testing.student import Student, Todo, Wrong, read_source
from minidist.testing.surroundings import default_transport, shared_by_threads, versions

MARK = (
    "exercise(points, ranks, timeout, group, hint, offers, forbids, partial, visibility, feedback): run a student's "
    "functions on ranks and count points; what it leaves out, the file's pytestmark says"
)
USUAL_START = 1.0  # seconds until four ranks have answered, on a machine for which the limits were chosen
LARGEST_STRETCH = 5.0
LONGEST_LINE = 500  # letters; a student may print more
LINES_AGAIN = 2  # of a message about a test that was wrong on another number of ranks before


class ExercisePlugin:
    """Everything that lives as long as the session: the ranks, and the points so far."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.debug_rank: int | None = config.getoption("debug_rank")
        self.tests: dict[str, Test] = {}
        self.running: Job | None = None
        self.stretch = 0.0  # of the limits; 0: not measured yet
        self.notes: set[str] = set()
        self.transport = config.getoption("exercise_transport") or default_transport()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make one item for each number of ranks."""
        if metafunc.definition.get_closest_marker("exercise") is None:
            return
        exercise = read_mark(metafunc.definition)
        said = exercise.check()
        if "student" not in metafunc.fixturenames:
            said = "it needs an argument `student`"
        if said:
            pytest.fail(f"@pytest.mark.exercise of {metafunc.definition.nodeid}: {said}", pytrace=False)
        sizes = list(exercise.ranks)
        if self.debug_rank is not None:  # one is enough to look around in
            sizes = [size for size in sizes if size > self.debug_rank][:1]
        metafunc.parametrize("student", sizes, indirect=True, ids=[str(size) for size in sizes])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Know all tests before the first runs: what is never reached counts as not run."""
        for item in items:
            if is_exercise(item):
                exercise = read_mark(item)
                feedback = exercise.feedback or self.config.getoption("feedback")
                self.tests.setdefault(key(item), Test(item.originalname, exercise, feedback))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Pass over what would tell nothing new."""
        if is_exercise(item) and self.tests[key(item)].over:
            pytest.skip("not run: another number of ranks has told enough")

    @pytest.fixture
    def student(self, request: pytest.FixtureRequest) -> Student:
        """Give the test its student, on so many ranks."""
        item: Any = request.node
        exercise = self.tests[key(item)].exercise
        path = item.path.parent / self.config.getoption("student")
        source = read_source(path)
        command = f"pytest {os.path.relpath(item.path)} -k {item.originalname}"

        def task(function: str) -> Task:
            return Task(source, str(path), function, tuple(exercise.offers), tuple(exercise.forbids), command)

        if self.debug_rank is not None:
            return Debugged(request.param, task, self.debug_rank, self.config)
        if self.transport == "threads":
            self.notes.update(shared_by_threads(source, path.name))
        self.job()  # its start is not part of the test's time
        return Student(request.param, self.job, task, exercise.timeout * self.stretch)

    def job(self) -> Job:
        """Return ranks that are whole; new ones if those before are not."""
        if self.running is not None and not self.running.over and self.printed() > on_rank.WRITES // 2:
            self.running.close()
        if self.running is None or self.running.over:
            began = time.monotonic()
            most = max(max(test.exercise.ranks) for test in self.tests.values())
            self.running = Job(most, self.transport, guard=True)
            self.running.call(hello, timeout=60.0)
            if not self.stretch:
                took = time.monotonic() - began
                self.stretch = min(max(1.0, took / USUAL_START), LARGEST_STRETCH)
        return self.running

    def printed(self) -> int:
        """Give the size of the largest file of what ranks have printed."""
        files = self.running.directory.glob("output-*") if self.running else []
        return max((file.stat().st_size for file in files), default=0)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        """Note how it ended, and let the report say that and nothing of pytest's inside."""
        report = (yield).get_result()
        if not is_exercise(item) or (call.when != "call" and call.excinfo is None):
            return
        test, size = self.tests[key(item)], item.callspec.params["student"]
        error = call.excinfo.value if call.excinfo else None
        ended = status_of(error)
        test.ended[size] = report.exercise = ended
        test.seconds += call.duration
        test.over |= ended == "todo" or (isinstance(error, Wrong) and error.over)
        if ended == "wrong":
            test.findings[size] = error.finding if isinstance(error, Wrong) else None
        if ended in ("todo", "wrong", "broken"):
            text = report.longreprtext if ended == "broken" else str(error)
            if ended == "broken":
                text = f"the exercise itself failed on {size} ranks, not the student's answer:\n{text}"
            if test.feedback == "name":
                text = f"{ended} on {size} ranks"
            text = "\n".join(line[:LONGEST_LINE] for line in text.splitlines())
            if test.message:  # the rest was told already
                text = "\n".join(text.splitlines()[:LINES_AGAIN])
            test.message = test.message or text
            report.longrepr = text
        if path := self.config.getoption("score_json"):
            score.write(Path(path), self.tests.values(), versions(self.transport))

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Tell a stub and a broken exercise from a wrong answer."""
        ended = getattr(report, "exercise", "")
        return (ended, ended[0], ended.upper()) if ended == "todo" else None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the table."""
        if not self.tests or self.debug_rank is not None:
            return
        terminalreporter.section("exercises")
        stretched = f", limits x {self.stretch:.1f} for this machine" if self.stretch > 1.1 else ""
        terminalreporter.line(f"ranks on {self.transport}{stretched}")
        for line in [*score.table(self.tests.values()), *sorted(self.notes)]:
            terminalreporter.line(line)

    def pytest_sessionfinish(self) -> None:
        """Let the ranks leave."""
        if self.running is not None:
            self.running.close()


def hello(comm: Any) -> int:
    """Answer, so that it is known how long that takes."""
    import minidist.comm.all_reduce  # noqa: F401 (what a first call would have to load)

    comm.barrier()
    return comm.rank


def is_exercise(item: Any) -> bool:
    """Tell whether this item is one run of an exercise's test."""
    return item.get_closest_marker("exercise") is not None and hasattr(item, "callspec")


def read_mark(item: Any) -> Exercise:
    """Return what the marks say, the nearest first."""
    said: dict[str, Any] = {}
    for mark in item.iter_markers("exercise"):
        if unknown := set(mark.kwargs) - set(Exercise.__dataclass_fields__):
            names = ", ".join(Exercise.__dataclass_fields__)
            pytest.fail(f"@pytest.mark.exercise has no {sorted(unknown)}; it has {names}", pytrace=False)
        said = {**mark.kwargs, **said}
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in said.items()}
    return Exercise(**fields)


def key(item: Any) -> str:
    """Name the test that an item is a part of."""
    return f"{item.parent.nodeid}::{item.originalname}"


def status_of(error: BaseException | None) -> str:
    """Say how an item ended; an assertion of the test itself speaks of the answer, too."""
    if error is None or isinstance(error, pytest.skip.Exception):
        return "ok" if error is None else "not run"
    if isinstance(error, Todo):
        return "todo"
    return "wrong" if isinstance(error, Wrong | AssertionError) else "broken"
