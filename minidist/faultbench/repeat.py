"""Run the correct programs again and again on ranks that stay: a false alarm may come once in a thousand times.

    for program, n, found in repeat(programs, (2, 4, 8), times=20): ...

One job for each number of ranks carries out all calls, so that a run costs milliseconds. The programs take turns, so
that each begins in whatever state the one before it has left the ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from minidist.faultbench.judge import Run, problems
from minidist.faultbench.programs import Program
from minidist.launch import Job


def execute(comm: Any, path: str) -> None:
    """Run a program as if it had been started on this rank; it finds its communicator with world()."""
    text = Path(path).read_text()
    exec(compile(text, path, "exec"), {"__name__": "__main__", "__file__": path})


@contextlib.contextmanager
def guarded_job(n: int, transport: str, without: str = "") -> Iterator[tuple[Job, Path]]:
    """Start ranks with the guard on; give the job and the file of its reports."""
    with tempfile.TemporaryDirectory(prefix="faultbench-") as name:
        report = Path(name, "reports")
        settings = {
            "MINIDIST_GUARD": "1",
            "MINIDIST_GUARD_REPORT": str(report),
            "MINIDIST_GUARD_WITHOUT": without,
        }
        with mock.patch.dict(os.environ, settings), Job(n, transport) as job:
            yield job, report


def one_call(job: Job, report: Path, program: Program, limit: float) -> Run:
    """Run a program on a job's ranks; who does not come back is the time limit's."""
    outcomes = job.call(execute, (str(program.path),), timeout=limit)
    ended = {outcome.ended for outcome in outcomes}
    code = 124 if "hung" in ended else int(ended != {"returned"})
    reports = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    report.unlink(missing_ok=True)
    said: dict[str, int] = {}  # each text once, as a job tells it, with its lowest rank
    for outcome in outcomes:
        if outcome.ended in ("raised", "exited", "died"):
            said.setdefault(outcome.traceback or outcome.message, outcome.rank)
    err = "\n".join(f"[rank {rank}] {text}" for text, rank in said.items())
    return Run(code, "\n".join(outcomes[0].output), err, 0.0, reports)


def repeat(
    programs: Sequence[Program], sizes: Sequence[int], times: int, transport: str = "mpi", limit: float = 30.0
) -> Iterator[tuple[Program, int, list[str]]]:
    """Run each program `times` times on each number of ranks; give what was wrong, each time."""
    for n in sizes:
        chosen = [program for program in programs if program.repeats and n in program.ranks]
        done = 0
        while done < times:
            with guarded_job(n, transport) as (job, report):
                while done < times and not job.over:
                    for program in chosen:
                        yield program, n, problems(program, n, one_call(job, report, program, limit))
                        if job.over:  # an unclean end: the rest of this turn is lost, and counted as not done
                            break
                    done += 1
