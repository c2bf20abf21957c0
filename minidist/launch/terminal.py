"""What the user sees of a job: the ranks' lines, whole and marked, and rank 0's progress as a bar.

A program that finds a file name in the environment variable MINIDIST_PROGRESS appends one JSON line a step to it:

    {"step": 40, "steps": 600, "epoch": 2, "loss": 0.41, "examples_per_second": 81000.0, "communication": 0.12}

With "ranks": [[0.74, 0.13, 0.13], ...], the shares of time in which each rank computes, communicates and is idle, the
bar has one more line for each rank. The variable is set only where the bar can be drawn (stderr is a terminal);
elsewhere programs print plain lines.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

WIDTH = 32  # characters of a rank's bar
MOST_RANKS = 16  # that are drawn


class Terminal:
    """Write whole lines of several ranks, and draw the bar below them."""

    def __init__(self, progress_file: Path | None, stdout: TextIO, stderr: TextIO) -> None:
        self.files = {"stdout": stdout, "stderr": stderr}
        self.progress_file = progress_file
        self.unfinished: dict[tuple[str, int], bytes] = {}  # (stream, rank) -> a line without its end
        self.said_something = False  # on stderr
        self.crashes: set[str] = set()  # what ranks have said that ended in C code
        self.muted: set[int] = set()
        self.bar: Any = None
        self.ranks: list[Any] = []  # a line for each, below it
        self.read = 0  # bytes of the progress file

    def write(self, stream: str, rank: int, data: bytes) -> None:
        """Take what a rank has printed, and show the lines that are whole."""
        *lines, rest = (self.unfinished.get((stream, rank), b"") + data).split(b"\n")
        self.unfinished[stream, rank] = rest
        for line in lines:
            self.line(stream, rank, line.decode(errors="replace"))

    def line(self, stream: str, rank: int, line: str) -> None:
        """Show one line, marked with its rank unless that is 0, whose lines are the program's own."""
        if line.startswith("Abort(") and "MPI_Abort" in line:
            return  # MPICH announces what the rank has just explained
        if line.startswith("Fatal Python error: "):
            if line in self.crashes:
                self.muted.add(rank)  # the same, and as many lines of stack, on one more rank
            self.crashes.add(line)
        if rank in self.muted:
            return
        self.said_something |= stream == "stderr"
        marked = line if rank == 0 or line.startswith("[rank ") else f"[rank {rank}] {line}"
        self.say(marked, stream)

    def say(self, text: str, stream: str = "stderr") -> None:
        """Print above the bar."""
        for bar in self.bars():
            bar.clear()
        try:
            print(f"{text}\n", end="", file=self.files[stream], flush=True)
        except OSError:  # nobody reads any more (`... | head`), or the disk is full: the program goes on
            self.files[stream] = open(os.devnull, "w")  # noqa: SIM115 - as long as the process lives
            setattr(sys, stream, self.files[stream])  # Python flushes it at its end
        for bar in self.bars():
            bar.refresh()

    def bars(self) -> list[Any]:
        """Give what is drawn now, from top to bottom."""
        return [] if self.bar is None else [self.bar, *self.ranks]

    def draw(self) -> None:
        """Bring the bar up to date."""
        if self.progress_file is None or not self.progress_file.exists():
            return
        with open(self.progress_file, "rb") as file:
            file.seek(self.read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self.read += len(whole)
        if not whole:
            return
        now = json.loads(whole.splitlines()[-1])
        from tqdm import tqdm

        if self.bar is None:
            form = "{percentage:3.0f}%|{bar}| step {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"
            self.bar = tqdm(
                total=now["steps"], bar_format=form, file=self.files["stderr"], dynamic_ncols=True, leave=True
            )
        self.bar.n = now["step"]
        self.bar.set_postfix_str(
            f"epoch {now['epoch']}, loss {now['loss']:.4f}, {now['examples_per_second']:,.0f} examples/s, "
            f"{now['communication']:.0%} communication"
        )
        for rank, shares in enumerate((now.get("ranks") or [])[:MOST_RANKS]):
            if rank == len(self.ranks):
                line = tqdm(
                    bar_format="{desc}", position=1 + rank, file=self.files["stderr"], dynamic_ncols=True
                )
                self.ranks.append(line)
            self.ranks[rank].set_description_str(rank_bar(rank, shares, self.files["stderr"].encoding or ""))

    def close(self) -> None:
        """Show what is left, and leave the bar as it is."""
        self.draw()
        for (stream, rank), rest in self.unfinished.items():
            if rest:
                self.line(stream, rank, rest.decode(errors="replace"))
        for bar in self.bars():
            bar.close()
        self.bar, self.ranks = None, []


def rank_bar(rank: int, shares: list[float], encoding: str) -> str:
    """Draw a rank's shares of its time, and say them."""
    marks = "█▒░" if encoding.lower().startswith("utf") else "#=."
    ends = [round(WIDTH * sum(shares[:number])) for number in range(4)]
    drawn = "".join(mark * (ends[i + 1] - ends[i]) for i, mark in enumerate(marks))
    said = zip(marks, ("compute", "communication", "idle"), shares, strict=True)
    return f"rank {rank:<3} {drawn}  " + "  ".join(
        f"{mark} {name} {share:4.0%}" for mark, name, share in said
    )
