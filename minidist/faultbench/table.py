"""The bench's result as a table: one row for each kind of fault, for the terminal or for a README."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from minidist.faultbench.judge import Run
from minidist.faultbench.programs import Program

HEADS = ("fault", "programs", "found", "time to report (median, most)", "plain mpi4py")


@dataclass(frozen=True)
class Result:
    """How one program did on some ranks."""

    program: Program
    n: int
    run: Run
    problems: list[str]
    plain: str = ""  # what plain mpi4py does with it, if that was asked for

    def as_json(self) -> dict[str, object]:
        """Give it as plain data."""
        return {
            "program": self.program.name,
            "fault": list(self.program.kinds),
            "ranks": self.n,
            "problems": self.problems,
            "exit code": self.run.code,
            "seconds": round(self.run.seconds, 3),
            "reports": self.run.reports,
            "plain mpi4py": self.plain,
        }


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Give one row for each kind, and one for correct programs, in the order in which they came."""
    kinds = dict.fromkeys(result.program.kinds[0] for result in results if result.program.kinds)
    table = [_row(kind, [r for r in results if r.program.kinds[:1] == (kind,)], "found") for kind in kinds]
    correct = [result for result in results if not result.program.kinds]
    return table + ([_row("none (correct programs)", correct, "quiet")] if correct else [])


def _row(name: str, results: Sequence[Result], good: str) -> tuple[str, ...]:
    right = sum(not result.problems for result in results)
    times = [report.get("time") for result in results for report in result.run.reports]
    known = [time for time in times if time is not None]
    when = f"{statistics.median(known):.2f} s, {max(known):.2f} s" if known else ""
    plain = Counter(result.plain for result in results if result.plain)
    asked = sum(plain.values())
    words = ", ".join(f"{what} {count} of {asked}" for what, count in plain.most_common())
    programs = len({result.program.name for result in results})
    return name, str(programs), f"{good} {right} of {len(results)}", when, words


def as_text(table: Sequence[tuple[str, ...]]) -> str:
    """Lay the table out for a terminal."""
    lines = [HEADS, *table]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def as_markdown(table: Sequence[tuple[str, ...]]) -> str:
    """Lay the table out for a README."""
    lines = [HEADS, ("---",) * len(HEADS), *table]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
