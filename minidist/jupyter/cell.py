"""A cell on one rank: run its text as a program, and hand back the variables that were asked for.

Read next: `magic.py`, which sends the cell here.
"""

import ast
import linecache
from collections.abc import Iterable, Mapping
from typing import Any

from minidist.comm import Communicator


class Variables:
    """The variables of one rank, as attributes."""

    def __repr__(self) -> str:
        names = [name for name in vars(self) if not name.startswith("__")]
        return f"<variables of a rank: {', '.join(names)}>"


def remember(text: str, name: str) -> None:
    """Let tracebacks and stacks show the lines of a cell."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def run(
    comm: Communicator,
    text: str,
    name: str,
    given: Mapping[str, Any],
    wanted: Iterable[str],
    kept: list[Variables] | None = None,
) -> dict[str, Any]:
    """Run the cell `text`, called `name` in tracebacks, and return those of the `wanted` variables that it has made.

    The cell finds `comm` and what is `given`. kept: for each rank variables that go on from one cell to the next.
    The last line's value is printed, as in every cell, unless it is None or the line ends with a semicolon.
    """
    variables = vars(kept[comm.rank]) if kept else {}
    variables.update(__name__="__main__", comm=comm, **given)
    remember(text, name)
    program = ast.parse(text, name)
    last = program.body.pop() if program.body and isinstance(program.body[-1], ast.Expr) else None
    exec(compile(program, name, "exec"), variables)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), variables)
        if value is not None and not text.rstrip().endswith(";"):
            print(repr(value))
    return {key: variables[key] for key in wanted if key in variables}
