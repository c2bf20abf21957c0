"""Keeping apart what ranks print that are threads of one process, and so share its stdout."""

import io
import threading
from collections.abc import Callable
from typing import TextIO


class OutputOfRanks(io.TextIOBase):
    """Be stdout for several ranks: collect each thread's text and hand on whole lines, with the rank.

    What other threads print, and what a rank flushes before its line is whole (a debugger's prompt), goes straight to
    `beside`.
    """

    def __init__(self, line: Callable[[int, str], None], beside: TextIO) -> None:
        self.line = line
        self.beside = beside
        self.mine = threading.local()  # .rank, and .text: an unfinished line

    def begin(self, rank: int) -> None:
        """Say that this thread is `rank`."""
        self.mine.rank, self.mine.text = rank, ""

    def write(self, text: str) -> int:
        """Take what this thread prints."""
        if not hasattr(self.mine, "rank"):
            return self.beside.write(text)
        *lines, self.mine.text = (self.mine.text + text).split("\n")
        for line in lines:
            self.line(self.mine.rank, line)
        return len(text)

    def flush(self) -> None:
        """Show an unfinished line as it is."""
        self.beside.write(getattr(self.mine, "text", ""))
        self.mine.text = ""
        self.beside.flush()

    def close(self) -> None:
        """Leave `beside` alone: Python closes this when it is freed, and `beside`, not ours, may be closed by then."""

    def end(self) -> None:
        """Hand on the last line of this thread, which may lack its end."""
        if self.mine.text:
            self.write("\n")
