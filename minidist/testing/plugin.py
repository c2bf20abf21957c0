"""The pytest plugin: run a test function on n ranks, and report it as one test.

    @pytest.mark.ranks(1, 2, 3, 4, transports=("threads", "mpi"), timeout=20)
    def test_something(comm, other_fixtures_of_plain_values): ...

gives one item for each transport and number of ranks (`test_something[mpi-3]`). The function runs on every rank and
asserts there; it fails if it fails on any rank, with that rank's own message and line. A rank that hangs, exits or
is killed costs this one test, and nothing of it is left.

The guard watches them (`minidist/comm/guard/`), unless the configuration says `minidist_guard = false`. What a test has
left open at its end, a message never received or a request never waited for, is a warning of that test.

The ranks live in a `Job` of `minidist.launch`: one child process with threads for the whole session, and one MPI job
for each module of tests, where 1, 2 and 3 ranks are the first ranks of the 4. After an unclean end the job is replaced.
The function travels to the ranks by value, together with its module's helpers, exactly as pytest rewrote its asserts.
"""

import re
import warnings
from dataclasses import dataclass
from typing import Any

import pytest

from minidist.errors import UserError
from minidist.launch import Job
from minidist.launch.mpiexec import find_mpiexec
from minidist.launch.report import causes, explain
from minidist.testing.exercise import MARK as EXERCISE
from minidist.testing.exercise import ExercisePlugin

MARK = (
    'ranks(*sizes, transports=("threads", "mpi"), timeout=20): run the test, whose first argument is `comm`, '
    "on that many ranks"
)


LEFT_OPEN = re.compile(
    r"minidist guard: \d+ (message|request)s? (was|were) "
)  # how the guard begins to tell of it
USUAL_RANKS = 4  # a job has at least so many, to serve the other tests of its module too


class GuardWarning(UserWarning):
    """A test has passed, and left something open."""


class LeftOpen:
    """Keep what the guard says of it at the end of a test, of all that its ranks print."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.rank: int | None = None  # who says it

    def __call__(self, rank: int, line: str) -> None:
        """Take a line that a rank has printed."""
        if LEFT_OPEN.match(line):
            self.rank = rank
        if rank == self.rank:
            self.lines.append(line)


@dataclass(frozen=True)
class Where:
    """Stand for the argument `comm` until a real communicator takes its place on the ranks."""

    transport: str
    size: int
    largest: int  # of this test function: its job must have so many
    timeout: float  # seconds


def read_mark(sizes: tuple[int, ...], transports: tuple[str, ...], timeout: float) -> list[Where]:
    """Return where a marked test is to run."""
    if not sizes or any(not isinstance(size, int) or size < 1 for size in sizes):
        pytest.fail(f"@pytest.mark.ranks needs numbers of ranks of at least 1, not {sizes!r}", pytrace=False)
    if unknown := set(transports) - {"threads", "mpi"}:
        pytest.fail(
            f'@pytest.mark.ranks: transports are "threads" and "mpi", not {sorted(unknown)!r}', pytrace=False
        )
    return [Where(transport, size, max(sizes), timeout) for transport in transports for size in sizes]


class RanksPlugin:
    """Everything that lives as long as the session: the jobs."""

    def __init__(self, guard: bool) -> None:
        self.guard = guard
        self.jobs: dict[str, Job] = {}  # transport -> its job
        self.owner: dict[str, Any] = {}  # transport -> the module whose job it is

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make one item for each transport and number of ranks."""
        mark = metafunc.definition.get_closest_marker("ranks")
        if mark is None:
            return
        if "comm" not in metafunc.fixturenames:
            pytest.fail(
                f"{metafunc.definition.nodeid} is marked with ranks: it needs an argument `comm`",
                pytrace=False,
            )
        options = {"transports": ("threads", "mpi"), "timeout": 20.0, **mark.kwargs}
        places = read_mark(mark.args, **options)
        metafunc.parametrize("comm", places, ids=[f"{place.transport}-{place.size}" for place in places])

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Run a marked test on its ranks instead of here."""
        if pyfuncitem.get_closest_marker("ranks") is None:
            return None
        arguments: dict[str, Any] = {
            name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames
        }
        where: Where = arguments.pop("comm")
        job, left_open = self.job(where, pyfuncitem), LeftOpen()
        outcomes = job.call(
            call_test,
            (pyfuncitem.obj, arguments, list(warnings.filters)),
            ranks=where.size,
            timeout=where.timeout,
            printed=left_open if self.guard else None,
        )
        if any(outcome.ended != "returned" for outcome in outcomes):
            blamed = causes(outcomes)
            if all(outcome.type == "Skipped" for outcome in blamed):  # pytest.skip(...) is an exception
                pytest.skip(blamed[0].message.removeprefix("Skipped: "))
            pytest.fail(explain(outcomes, where.transport, where.timeout), pytrace=False)
        if left_open.lines:
            pyfuncitem.warn(GuardWarning("\n".join(left_open.lines)))
        return True

    def job(self, where: Where, item: pytest.Function) -> Job:
        """Return the job for this item: the one that runs, if it is whole, large enough and of this module."""
        import cloudpickle

        module = item.module
        if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
        transport = where.transport
        owner = module if transport == "mpi" else None
        running = self.jobs.get(transport)
        if running is not None and (running.over or self.owner[transport] != owner or running.n < where.size):
            running.close()
            running = None
        if running is None:
            if transport == "mpi":
                try:
                    find_mpiexec()
                except UserError as why:
                    pytest.skip(str(why))
            running = self.jobs[transport] = Job(max(where.largest, USUAL_RANKS), transport, self.guard)
            self.owner[transport] = owner
        return running

    def pytest_sessionfinish(self) -> None:
        """Let the ranks leave."""
        for job in self.jobs.values():
            job.close()


def call_test(comm: Any, function: Any, arguments: dict[str, Any], filters: list[Any]) -> None:
    """Call the test on a rank, under the same warning filters as in the parent."""
    warnings.filters[:] = filters  # type: ignore[index]
    function(comm=comm, **arguments)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the configuration turn the guard off."""
    words = "watch the ranks: find calls that do not fit together, and ranks that wait for ever"
    parser.addini("minidist_guard", words, type="bool", default=True)
    group = parser.getgroup("minidist", "exercises")
    group.addoption("--student", default="student.py", help="the file to grade, from the test's folder")
    group.addoption("--score-json", metavar="PATH", help="write the points here, again after each test")
    group.addoption(
        "--feedback", default="diagnosis", choices=["name", "hint", "diagnosis"], help="what to tell"
    )
    group.addoption(
        "--exercise-transport", choices=["mpi", "threads"], help="where ranks run; mpi if it is there"
    )
    group.addoption(
        "--debug-rank", type=int, metavar="RANK", help="stop at this rank's breakpoint()s; no limit"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark and the plugin's state."""
    config.addinivalue_line("markers", MARK)
    config.addinivalue_line("markers", EXERCISE)
    config.pluginmanager.register(ExercisePlugin(config), "minidist-exercises")
    config.pluginmanager.register(RanksPlugin(config.getini("minidist_guard")), "minidist-ranks")
