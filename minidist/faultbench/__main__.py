"""The command: try the guard on small programs, half of them with a fault and half of them correct.

    python -m minidist.faultbench                          all programs, on 2, 4 and 8 ranks
    python -m minidist.faultbench --only left cycle        those with these words in their names
    python -m minidist.faultbench --without deadlock       a detector off: the programs that need it must turn red
    python -m minidist.faultbench --repeat 20              the correct ones, 20 times each
    python -m minidist.faultbench --against-mpi4py         and what plain mpi4py does with the same programs

Exit code 0: every fault was found, and nothing else was. 1: a program is red. 3: with a detector off, one that should
have needed it is still green. Read next: `programs.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from minidist.errors import UserError
from minidist.faultbench.judge import problems
from minidist.faultbench.programs import RANKS, Program, read
from minidist.faultbench.repeat import repeat
from minidist.faultbench.run import run, what_mpi4py_does
from minidist.faultbench.table import Result, as_markdown, as_text, rows

PROGRAMS = Path(__file__).parents[2] / "tests" / "faults"
# The guard's detectors, and the kinds that only they can find.
DETECTORS = {
    "mismatch": {"mismatch", "message"},
    "deadlock": {"missing rank", "communicator", "cycle", "unmatched receive"},
    "left": {"left"},
    "send": {"buffered send"},
    "requests": {
        "never received",
        "never waited",
        "waited twice",
        "changed in flight",
        "temporary",
        "read before wait",
    },
    "straggler": {"straggler"},
}
LIMIT = 30.0  # seconds for a program; a slow machine and Python's start included
RED_LIMIT = 8.0  # for one whose fault nobody is to find


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; return the exit code."""
    options = parse(arguments)
    try:
        programs = choose(read(options.programs), options)
        if options.repeat:
            return repeat_all(programs, options)
        results = []
        for result in run_all(programs, options):
            results.append(result)
            verdict = "; ".join(result.problems) or "ok"
            print(
                f"{result.program.name:36} {result.n} ranks  {result.run.seconds:5.1f} s  {verdict}",
                flush=True,
            )
        table = rows(results)
        print(f"\n{as_markdown(table) if options.markdown else as_text(table)}")
        if options.json:
            options.json.write_text(json.dumps([result.as_json() for result in results], indent=1) + "\n")
        return conclude(results, options.without)
    except (UserError, OSError) as error:
        print(f"minidist.faultbench: {error}", file=sys.stderr)
        return 2


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m minidist.faultbench",
        description="Try the guard on small programs with and without faults.",
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS, metavar="N", help="default: 2 4 8")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="programs with this in their names"
    )
    parser.add_argument(
        "--without", choices=DETECTORS, default="", help="switch one of the guard's detectors off"
    )
    parser.add_argument(
        "--repeat", type=int, default=0, metavar="TIMES", help="run each correct program so often"
    )
    parser.add_argument("--transport", choices=["mpi", "threads"], default="mpi")
    parser.add_argument(
        "--against-mpi4py", action="store_true", help="run the faulty ones on plain mpi4py, too"
    )
    parser.add_argument("--programs", type=Path, default=PROGRAMS, metavar="DIRECTORY", help="where they are")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all results there")
    return parser.parse_args(arguments)


def choose(programs: Sequence[Program], options: argparse.Namespace) -> list[Program]:
    """Give the programs that were asked for."""
    chosen = [program for program in programs if any(word in program.name for word in options.only)]
    if options.without:
        chosen = [program for program in chosen if options.without in detectors_of(program)]
    if options.repeat:
        chosen = [program for program in chosen if not program.kinds]
    if not chosen:
        raise UserError(f"no program fits --only {' '.join(options.only)} here; see {options.programs}")
    return chosen


def detectors_of(program: Program) -> list[str]:
    """Give the detector without which a program's fault is not found; nothing where several find it."""
    if "detector" in program.facts:
        return [program.facts["detector"]]
    return [name for name, kinds in DETECTORS.items() if program.kinds and kinds.issuperset(program.kinds)]


def run_all(programs: Sequence[Program], options: argparse.Namespace) -> Iterator[Result]:
    """Run each program on each number of ranks, one job at a time."""
    limit = RED_LIMIT if options.without else LIMIT
    without = ",".join([options.without, *sorted(DETECTORS[options.without])]) if options.without else ""
    for program in programs:
        for n in options.ranks:
            if n in program.ranks:
                done = run(program, n, options.transport, limit, without)
                plain = what_mpi4py_does(program, n) if options.against_mpi4py and program.kinds else ""
                yield Result(program, n, done, problems(program, n, done), plain)


def repeat_all(programs: Sequence[Program], options: argparse.Namespace) -> int:
    """Run correct programs many times; say how many runs there were, and every one that was not quiet."""
    runs = alarms = 0
    for program, n, found in repeat(programs, options.ranks, options.repeat, options.transport):
        runs += 1
        if found:
            alarms += 1
            print(f"{program.name:36} {n} ranks  {'; '.join(found)}", flush=True)
    print(f"{runs} runs of {len(programs)} correct programs, {alarms} of them red")
    return int(alarms > 0)


def conclude(results: Sequence[Result], without: str) -> int:
    """Say how it went, and return the exit code."""
    red = [result for result in results if result.problems]
    if not without:
        print(f"\n{len(results)} runs, {len(red)} red")
        return int(bool(red))
    green = sorted({f"{r.program.name} ({r.n} ranks)" for r in results if not r.problems})
    print(f"\nwithout {without!r}: {len(red)} of {len(results)} runs turn red, as they must")
    if green:
        print(f"still green: {', '.join(green)}")
    return 3 if green else 1


if __name__ == "__main__":
    sys.exit(main())
