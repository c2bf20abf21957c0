"""The command: `python -m minidist.check mystep.py --ranks 2,4`.

The file defines `build(comm)` and `step(comm, state, inputs, labels)`, and if it likes `data` (inputs and labels, or a
function that gives them) and `loss(outputs, labels)`. Exit code 0: nothing differs; 1: something does; 2: a mistake in
the command.
"""

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minidist.check.observe import mean_cross_entropy
from minidist.check.run import BATCH, STEPS, run
from minidist.comm.world import launcher_facts
from minidist.errors import UserError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m minidist.check",
        description="Run a training step on some ranks and on one, and name the first tensor that differs.",
        epilog="The file defines build(comm) and step(comm, state, inputs, labels); also, if it likes, data and loss.",
    )
    parser.add_argument("file", help="the Python file with build and step")
    parser.add_argument("--ranks", default="2,4", metavar="N,N", help="numbers of ranks to try (2,4)")
    parser.add_argument(
        "--batch", type=int, default=BATCH, help=f"examples in a batch that is shared evenly ({BATCH})"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps to compare ({STEPS})")
    parser.add_argument(
        "--transport", choices=["threads", "mpi"], default="threads", help="what ranks are (threads)"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the file; return the exit code."""
    options = _parser().parse_args(arguments)
    started = launcher_facts(os.environ)
    if started and started.rank not in (0, None):
        return 0  # it starts ranks itself: one check is enough
    try:
        given = _read(options.file)
        counts = [int(n) for n in options.ranks.split(",") if n.strip().isdigit()]
        if not counts or min(counts) < 2 or len(counts) != len(options.ranks.split(",")):
            raise UserError(f"--ranks is {options.ranks!r}; expected numbers from 2 up, like 2,4")
        for name, least in (("batch", 3), ("steps", 1)):
            if getattr(options, name) < least:
                raise UserError(f"--{name} is {getattr(options, name)}; expected {least} or more")
        data = given.get("data")
        report = run(
            given["build"],
            given["step"],
            data() if callable(data) else data,
            counts,
            loss=given.get("loss", mean_cross_entropy),
            batch=options.batch,
            steps=options.steps,
            transport=options.transport,
        )
    except UserError as error:
        print(f"minidist.check: {error}", file=sys.stderr)
        return 2
    print(report)
    return 0 if report.ok else 1


def _read(file: str) -> dict[str, Any]:
    if not Path(file).is_file():
        raise UserError(f"there is no file {file!r} here; give the Python file that defines build and step")
    sys.path.insert(0, str(Path(file).resolve().parent))
    given = runpy.run_path(file, run_name="mystep")
    missing = [name for name in ("build", "step") if not callable(given.get(name))]
    if missing:
        raise UserError(
            f"{file} defines no {' and no '.join(missing)}; expected build(comm), which returns what a step needs, and "
            "step(comm, state, inputs, labels), which takes one"
        )
    return given


if __name__ == "__main__":
    sys.exit(main())
