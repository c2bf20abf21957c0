"""Train a model on one rank, or on all that mpiexec starts: `mpiexec -n 4 python -m minidist.train`.

This is the command: it reads the options and prints the result. Read next, in this order: `loop.py`, the training loop,
which every rank executes; `run.py`, what is done before and after it; `options.py`, what can be asked for.
"""

import sys
from collections.abc import Sequence

import numpy as np

from minidist.comm import guard, leaving, world
from minidist.errors import UserError
from minidist.train import see
from minidist.train.options import parse
from minidist.train.report import check_writable, closing_table, say, write_json
from minidist.train.run import run
from minidist.train.scalars import check as check_tensorboard

SIGTERM = 143  # the exit code of a training that has stopped in order because of that signal: 128 + 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, build, run, report; return the exit code."""
    comm = None
    try:
        comm = world()
        options = parse(sys.argv[1:] if arguments is None else arguments)
        if options.help is not None:
            if comm.rank == 0:
                say(options.help)
            return 0
        if comm.rank == 0:
            if options.json:
                check_writable(options.json)
            see.check(options)
            check_tensorboard(options)
        if options.guard:
            guard.watch(comm)
        with np.errstate(all="ignore"):  # what is not finite is found in nonfinite.py, on all ranks together
            result = run(options, comm)
        if result.get("stopped"):
            leaving.farewell()  # the exit code is no failure of this rank
            return SIGTERM
        if options.explain:
            return 0
        if comm.rank == 0 and not options.quiet:
            say(closing_table(result, "characters" if options.data == "text" else "images"))
            if result["sample"] is not None:
                say(f"\nthe model writes:\n{result['sample']}")
        if comm.rank == 0 and options.json:
            write_json(options.json, result)
    except UserError as error:
        if comm is not None and comm.size > 1:
            raise  # comm/leaving.py prints it, once for all ranks, and ends them
        print(f"minidist.train: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
