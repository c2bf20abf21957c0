"""Whether the guard was right about one run: a pure function of what was expected and what was said.

Strict: the report's kind, all its ranks and all their lines must be right, it must be the only one, and the job must
have ended by itself, with an exit code that says so, and without leaving anything behind. A correct program must end
well, print what it promises, and cause no report at all.

Read next: `run.py`, where runs come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from minidist.faultbench.programs import Program

# Told when a program ends, or while it goes on: it may well end with 0.
WARNINGS = {"never received", "never waited", "waited twice", "read before wait", "straggler"}
# Not the guard's: what a rank raises by itself is told by the job, with its traceback.
RAISED = {"argument", "died"}
HUNG = 124  # the exit code of a job that was ended at its time limit


@dataclass(frozen=True)
class Run:
    """What happened when a program was run."""

    code: int
    out: str
    err: str
    seconds: float  # from start to end, the start of Python and MPI included
    reports: list[dict[str, Any]] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)  # what the job left behind, in words


def problems(program: Program, n: int, run: Run) -> list[str]:
    """Say what was not right; nothing: all was."""
    found = [f"left behind: {what}" for what in run.remains]
    if run.code == HUNG:
        return [*found, "ran into the time limit"]
    if not program.kinds:
        return found + _of_correct(program, n, run)
    if RAISED & set(program.kinds):
        return found + _of_raised(program, n, run)
    if len(run.reports) != 1:
        said = ", ".join(str(report.get("kind")) for report in run.reports) or "none"
        return [*found, f"{len(run.reports)} reports ({said}), expected one: {' or '.join(program.kinds)}"]
    (report,) = run.reports
    if report["kind"] not in program.kinds:
        found.append(f"kind is {report['kind']!r}, expected {' or '.join(map(repr, program.kinds))}")
    if run.code == 0 and report["kind"] not in WARNINGS:
        found.append("exit code is 0")
    return found + _places(program, n, report)


def _of_correct(program: Program, n: int, run: Run) -> list[str]:
    found = [f"a false alarm: {report['kind']}" for report in run.reports]
    if run.code != 0:
        found.append(f"exit code is {run.code}")
    if (expected := program.prints(n)) is not None and run.out.strip() != expected:
        found.append(f"printed {run.out.strip()[:60]!r}, expected {expected!r}")
    if run.err.strip() and not run.reports:
        found.append(f"said {run.err.strip()[:100]!r}")
    return found


def _of_raised(program: Program, n: int, run: Run) -> list[str]:
    """Look for the traceback of a rank that raised by itself, and for no word of the guard beside it."""
    expected = program.expected(n)
    found = [
        f"a report ({report['kind']}) beside the error"
        for report in run.reports
        if report["kind"] not in RAISED
    ]
    if run.code == 0:
        found.append("exit code is 0")
    if "argument" in program.kinds and not re.search(r"\b(ValueError|TypeError): ", run.err):
        found.append("no ValueError and no TypeError was told")
    places = {int(line) for line in re.findall(rf'{program.name}\.py(?:", line |:)(\d+)', run.err)}
    wanted = {line for lines in expected.lines.values() for line in lines}
    if wanted and not places & wanted:
        found.append(f"the line is not told: {sorted(places)}")
    told = {int(rank) for rank in re.findall(r"^\[?rank (\d+)\b", run.err, re.MULTILINE)}
    if not told & (expected.must | expected.others):
        found.append(f"the rank is not told: {sorted(told)}")
    if run.err.count("Traceback") > 1:
        found.append(f"{run.err.count('Traceback')} tracebacks, expected one")
    return found


def _places(program: Program, n: int, report: Mapping[str, Any]) -> list[str]:
    """Compare ranks and lines with what the program says of itself."""
    expected, ranks, found = program.expected(n), set(report["ranks"]), []
    if missing := expected.must - ranks:
        found.append(f"ranks are {sorted(ranks)}: without {sorted(missing)}")
    if expected.others and not expected.others & ranks:
        found.append(f"ranks are {sorted(ranks)}: none of {sorted(expected.others)}")
    if strange := ranks - expected.known:
        found.append(f"ranks are {sorted(ranks)}: {sorted(strange)} should not be there")
    for rank in sorted(ranks & set(expected.lines)):
        got = report["lines"].get(str(rank), "no line")
        right = {f"{program.name}.py:{line}" for line in expected.lines[rank]}
        if got.replace("\\", "/").rpartition("/")[2] not in right:
            found.append(f"rank {rank} is at {got.rpartition('/')[2]}, expected {' or '.join(sorted(right))}")
    return found
