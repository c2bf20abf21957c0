"""The command: `python -m minidist.bench [kernels|step|comm]`, all three by default.

Measure, print each row as soon as it is there, and write what was asked for. Read next: `measure.py`.
"""

import argparse
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import threadpoolctl

from minidist import _kernels as kernels
from minidist.bench import comm, ladder, roofline, step
from minidist.bench import kernels as kernel_suite
from minidist.bench.measure import Row, measure, pinned
from minidist.errors import UserError
from minidist.trace.processor import Processor

SUITES = ("kernels", "step", "comm")
SECONDS = {"kernels": 0.15, "step": 3.0, "comm": 2.0}  # for each case
QUICK_SECONDS = {"kernels": 0.02, "step": 0.2, "comm": 0.2}
HEAD = f"{'':48} {'ours':>8}   {'beside':16} {'':>8} {'ratio':>6} {'rate':>13} {'of roof':>8}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, measure, print; return the exit code."""
    options = parse(arguments)
    try:
        if options.plot:
            roofline.require_matplotlib()
        for path in filter(None, (options.json, options.plot)):
            if not Path(path).absolute().parent.is_dir():
                raise UserError(
                    f"{path} cannot be written: there is no such directory; make it, or name another"
                )
        threads = int(os.environ["OMP_NUM_THREADS"])
        processor = Processor()
        print(introduction(threads), flush=True)
        rows = []
        for suite in options.suites:
            rows += show(suite, run(suite, options, processor, threads))
        if options.plot:
            roofline.draw(rows, processor, options.plot)
        if options.json:
            Path(options.json).write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")
    except (UserError, OSError) as error:
        print(f"minidist.bench: {error}", file=sys.stderr)
        return 2
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m minidist.bench",
        description="Measure this engine on this machine, beside NumPy and MPI.",
        epilog="OMP_NUM_THREADS=2 before the command gives us and NumPy two threads each.",
        allow_abbrev=False,
    )
    parser.add_argument("suites", nargs="*", metavar="|".join(SUITES), help="what to measure (all of it)")
    parser.add_argument(
        "--quick", action="store_true", help="some seconds instead of some minutes; less exact"
    )
    parser.add_argument("--ladder", action="store_true", help="climb the matrix product's ladder instead")
    parser.add_argument("--json", metavar="PATH", help="write all rows as a list of objects")
    parser.add_argument("--plot", metavar="PATH", help="draw a roofline picture (needs matplotlib)")
    options = parser.parse_args(arguments)
    for suite in options.suites:
        if suite not in SUITES:
            parser.error(f"there is no suite {suite!r}; choose from {', '.join(SUITES)}")
    if options.ladder:
        options.suites = ["kernels"]
    options.suites = options.suites or list(SUITES)
    return options


def run(suite: str, options: argparse.Namespace, processor: Processor, threads: int) -> Iterator[Row]:
    """Measure one suite, row by row."""
    seconds = (QUICK_SECONDS if options.quick else SECONDS)[suite]
    if suite == "comm":
        yield from comm.rows(options.quick, seconds)
        return
    if options.ladder:
        cases = ladder.cases(options.quick)
    else:
        cases = kernel_suite.cases(options.quick) if suite == "kernels" else step.cases(options.quick)
    with pinned(threads):
        yield from measure(suite, cases, processor, threads, seconds)


def introduction(threads: int) -> str:
    """Say what is compared with what."""
    libraries = [
        f"{library['internal_api']} {library.get('version')} ({library.get('architecture')})"
        for library in threadpoolctl.threadpool_info()
        if library["user_api"] == "blas"
    ]
    blas = " with " + ", ".join(libraries) if libraries else ""
    return (
        f"ours: {kernels.path} kernels; beside: NumPy {np.__version__}{blas}; {threads} thread"
        f"{'s' * (threads > 1)} each, medians of interleaved runs, ratio > 1: ours is faster"
    )


def show(suite: str, rows: Iterator[Row]) -> list[Row]:
    """Print the rows as they come, then what they amount to; return them."""
    print(f"\n{suite}\n{HEAD}", flush=True)
    kept = []
    for row in rows:
        print(line(row), flush=True)
        kept.append(row)
    print("\nratio in the geometric mean, and at worst")
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in kept:
        groups[row.name.split(" ")[0].rstrip(","), row.dtype, row.peer].append(row.ratio)
    for (name, dtype, peer), ratios in groups.items():
        mean, worst = statistics.geometric_mean(ratios), min(ratios)
        print(f"{name:20} {dtype}   of {peer:20} {mean:6.2f} {worst:6.2f}  ({len(ratios)} rows)")
    if suite == "step":
        for work in step.WORKS:
            peak, needed = step.peak_memory(work)
            print(
                f"memory: at most {peak / needed:.2f} of what is needed, {needed / 1e6:.2f} MB, by {work.name}"
            )
        print(f"import minidist: {step.import_seconds():.3f} s")
    return kept


def line(row: Row) -> str:
    """Lay out one row."""
    name = row.name
    if not name.startswith(("MLP", "GPT", "data")):  # these names tell the shape
        name += " of " + "x".join(map(str, row.shape)) + " float64" * (row.dtype == "float64")
    rate = ""
    if row.flops > 2 * row.nbytes:  # arithmetic is what counts
        rate = f"{row.flops / row.ours_seconds / 1e9:.1f} GFLOP/s"
    elif row.nbytes:
        rate = f"{row.nbytes / row.ours_seconds / 1e9:.1f} GB/s"
    roof = f"{row.roof_seconds / row.ours_seconds:.0%}" if row.roof_seconds else ""
    ours, theirs = duration(row.ours_seconds), duration(row.peer_seconds)
    return f"{name:48} {ours:>8}   {row.peer:16} {theirs:>8} {row.ratio:6.2f} {rate:>13} {roof:>8}"


def duration(seconds: float) -> str:
    """Write a time with three digits that count: 1.23 us, 45.6 ms."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


if __name__ == "__main__":
    sys.exit(main())
