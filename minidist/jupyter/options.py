"""What the first line of a cell may say: `%%mpi -n 4 --with f,data --return losses --timeout 20`.

Read next: `magic.py`, which does it.
"""

import argparse
import shlex
from typing import NoReturn

from IPython.core.error import UsageError


class Parser(argparse.ArgumentParser):
    """A parser that never ends the kernel."""

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong; `%%mpi?` shows everything."""
        raise UsageError(f"{self.prog}: {message}; {self.prog}? shows what can be said")


def names(text: str) -> list[str]:
    """Read "a,b": variables of the notebook or of the ranks."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    for name in found:
        if not name.isidentifier():
            raise argparse.ArgumentTypeError(f"{name!r} is no variable's name; give names, with commas: a,b")
    return found


def positive(text: str) -> float:
    """Read a number of seconds, or of ranks."""
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return number


def read(line: str, of_a_cell: bool) -> argparse.Namespace:
    """Read the first line of a cell, or the line that runs a program."""
    parser = Parser(prog="%%mpi" if of_a_cell else "%mpi", add_help=False, allow_abbrev=False)
    parser.add_argument("-n", type=int, required=True, metavar="RANKS")
    parser.add_argument("--timeout", type=positive, default=60.0)
    parser.add_argument("--transport", choices=["mpi", "threads"], default="mpi")
    if of_a_cell:
        parser.add_argument("--with", dest="given", type=names, default=[], metavar="NAMES")
        parser.add_argument("--return", dest="wanted", type=names, default=[], metavar="NAMES")
    else:
        parser.add_argument("-m", dest="module", action="store_true")
        parser.add_argument("program", nargs=argparse.REMAINDER)
    parser.add_argument("--no-guard", action="store_true")
    given = parser.parse_args(shlex.split(line))
    if given.n < 1:
        parser.error(f"-n must be at least 1, not {given.n}")
    if not of_a_cell and not given.program:
        parser.error(
            "it runs a program: %mpi -n 4 -m minidist.train. To run a cell, begin the cell with %%mpi"
        )
    return given
