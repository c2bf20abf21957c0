"""An exercise under a debugger: `pytest ... --debug-rank 2`.

The ranks are threads of pytest's own process, without a limit, and pytest keeps its hands off the terminal. Rank 2's
breakpoint() opens pdb there, and a debugger like VS Code's stops at its own marks.

Read next: `student.py`, what it is a kind of.
"""

import pdb
import sys
import threading
from typing import Any

import pytest

from minidist.launch import Job, marked_lines, run_on_threads
from minidist.testing import on_rank
from minidist.testing.student import Student


class Debugged(Student):
    """Run a student's functions on threads of this process, without a limit, and stop where one rank asks for it."""

    def __init__(self, size: int, task: Any, rank: int, config: pytest.Config) -> None:
        super().__init__(size, self.job, task, threading.TIMEOUT_MAX)
        self._rank, self._config = rank, config

    def job(self) -> Job:
        """Have none."""
        raise RuntimeError("a debugged test runs in this process")

    def call(self, function: str, arguments: Any) -> list[Any]:
        """Run function(comm, *arguments[rank]) on every rank, with pytest's hands off the terminal."""
        from minidist.comm.threads import this_rank

        def stop(*_: Any, **__: Any) -> None:
            comm = this_rank()
            if comm is not None and comm.rank == self._rank:
                pdb.Pdb().set_trace(sys._getframe(1))

        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        capture.suspend(in_=True)
        try:
            task = self._task(function)
            outcomes = run_on_threads(
                on_rank.run,
                self.size,
                (task, list(arguments), {"breakpoint": stop, "input": input}),
                timeout=self._limit,
                printed=marked_lines(sys.stdout),
            )
        finally:
            capture.resume()
        return self.read(task, outcomes, "threads")
