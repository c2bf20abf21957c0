"""The magics: `%%mpi` runs a cell on ranks, `%mpi` a program.

    %%mpi -n 4 --with data --return losses             %mpi -n 4 -m minidist.train --epochs 2

What ranks print comes line by line, each with its rank. Where ranks fail, the cell fails with the report of
`minidist.launch`: the traceback of the rank that failed, in the cell's own lines; or what each rank waits for.

Read next: `options.py`, the first line; `cell.py`, the ranks' side; `minidist/launch/job.py`, which starts them.
"""

import argparse
import ast
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics as Base
from IPython.core.magic import line_cell_magic, magics_class

from minidist.errors import UserError
from minidist.jupyter import cell as cells
from minidist.jupyter.options import read
from minidist.launch import Job, Outcome, marked_lines, run_on_threads
from minidist.launch.report import causes, explain


class RanksFailed(Exception):
    """Tell how ranks failed, without the kernel's own traceback, which would say nothing."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


@magics_class
class Magics(Base):
    """`%%mpi` and `%mpi`; one object for a kernel."""

    shell: Any  # IPython's
    kept: list[cells.Variables] | None = None  # of ranks that are threads, from cell to cell

    @line_cell_magic
    def mpi(self, line: str, cell: str | None = None) -> None:
        """Run a cell, or a program, on ranks.

        %%mpi -n RANKS ...          as the first line of a cell: each of RANKS fresh Pythons runs the cell,
                                    where `comm` is the communicator
        %mpi -n RANKS -m MODULE ... runs a module with its arguments; without -m a script

        --with f,data     every rank gets these functions, arrays ... of the notebook
        --return losses   the notebook gets this variable, as a list of the ranks' values
        --timeout 20      the ranks are ended after 20 seconds (default 60), and the cell says where they stood
        --transport threads   the ranks are threads of the kernel: they start at once, need no MPI, and keep their
                          variables for the next such cell; the notebook sees them as ranks[0], ranks[1], ...
        --no-guard        do not look for calls that never meet
        """
        given = read(line, cell is not None)
        try:
            if cell is None:
                self.run_program(given)
            else:
                self.run_cell(given, cell)
        except UserError as error:
            raise RanksFailed(str(error)) from None

    def run_cell(self, given: argparse.Namespace, cell: str) -> None:
        """Run a cell on ranks and put what it returns into the notebook."""
        notebook = self.shell.user_ns
        missing = [name for name in given.given if name not in notebook]
        if missing:
            raise UsageError(
                f"--with {missing[0]}: the notebook has no {missing[0]}; run the cell that makes it first"
            )
        text = "\n" + cell  # the magic's line is the first that the reader sees
        name = f"cell [{len(notebook.get('In', '?')) - 1}]"
        check_syntax(text, name)
        cells.remember(text, name)
        arguments = (text, name, {key: notebook[key] for key in given.given}, given.wanted)
        if given.transport == "threads":
            outcomes = self.on_threads(given, arguments)
        else:
            plural = (
                f"{given.n} fresh Pythons start: each runs"
                if given.n > 1
                else "One fresh Python starts: it runs"
            )
            print(f"{plural} this cell, with its own variables.", flush=True)
            with Job(given.n, guard=not given.no_guard) as job:
                outcomes = job.call(
                    cells.run, arguments, timeout=given.timeout, printed=marked_lines(sys.stdout)
                )
        if any(outcome.ended != "returned" for outcome in outcomes):
            report = explain(outcomes, given.transport, given.timeout, with_output=False)
            raise RanksFailed("\n".join([report, *advice(outcomes, notebook)]))
        for key in given.wanted:
            if not any(key in outcome.value for outcome in outcomes):
                raise RanksFailed(f"--return {key}: no rank has a variable of that name when the cell ends")
            notebook[key] = [outcome.value.get(key) for outcome in outcomes]

    def on_threads(self, given: argparse.Namespace, arguments: tuple[Any, ...]) -> list[Outcome]:
        """Run a cell on ranks that are threads of the kernel."""
        if self.kept is None or len(self.kept) != given.n:
            self.kept = [cells.Variables() for _ in range(given.n)]
        self.shell.user_ns["ranks"] = self.kept
        print(
            f"{given.n} threads of this kernel run this cell; their variables stay, as ranks[0] and so on.",
            flush=True,
        )
        return run_on_threads(
            cells.run,
            given.n,
            (*arguments, self.kept),
            timeout=given.timeout,
            printed=marked_lines(sys.stdout),
            guard=not given.no_guard,
        )

    def run_program(self, given: argparse.Namespace) -> None:
        """Run a program on ranks, as `python -m minidist.launch` does."""
        options = [f"-n{given.n}", f"--timeout={given.timeout}", f"--transport={given.transport}"]
        ours = given.module and given.program[0].startswith(
            "minidist."
        )  # does not need it, and would be slower
        options += [*([] if given.no_guard or ours else ["--guard"]), *(["-m"] if given.module else [])]
        command = [sys.executable, "-m", "minidist.launch", *options, *given.program]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as ranks:
            assert ranks.stdout is not None
            try:
                for said in ranks.stdout:
                    print(said, end="", flush=True)
            except KeyboardInterrupt:
                ranks.send_signal(signal.SIGINT)
                print(ranks.stdout.read(), end="")
                raise RanksFailed("interrupted") from None
        if ranks.returncode:
            raise RanksFailed(f"the program ended with exit code {ranks.returncode}")


def check_syntax(text: str, name: str) -> None:
    """Refuse a cell that is no Python, before anything is started for it."""
    try:
        ast.parse(text, name)
    except SyntaxError as error:
        lines = text.splitlines()
        line = lines[error.lineno - 1].strip() if error.lineno and error.lineno <= len(lines) else ""
        if line.startswith(("%", "!")):
            raise UsageError(
                f"ranks run plain Python, and {line!r} is for the notebook: put it into a cell of its own"
            ) from None
        raise RanksFailed("".join(traceback.format_exception_only(error)).rstrip()) from None


def advice(outcomes: Sequence[Outcome], notebook: Mapping[str, Any]) -> list[str]:
    """Say what to do about a name that the ranks do not know and the notebook does, or a limit that was reached."""
    cause = causes(outcomes)[0]
    unknown = re.search(r"name '(\w+)' is not defined", cause.message) if cause.type == "NameError" else None
    if unknown and unknown[1] in notebook:
        name = unknown[1]
        what = (
            "import it in this cell, too"
            if type(notebook[name]).__name__ == "module"
            else f"add --with {name} to the first line"
        )
        return ["", f"`{name}` lives in the notebook, and the ranks have variables of their own: {what}."]
    if cause.ended == "hung":
        return ["", "If they were still at work, give them more time: --timeout SECONDS in the first line."]
    return []
