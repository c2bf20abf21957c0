"""What `python -m minidist.train` shows: progress while it runs, a table at the end, a JSON file if asked.

Only rank 0 prints. Under plain mpiexec its standard output is a pipe, never a terminal, so progress is plain lines at
a pace that can be read. Under `python -m minidist.launch` the launcher owns the terminal: rank 0 then hands it numbers,
in the file that MINIDIST_PROGRESS names, and the launcher draws a bar.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minidist.comm import Communicator
from minidist.errors import UserError
from minidist.machine import core_count

FASTER_ON_TWO = "mpiexec -n 2 python -m minidist.train --model gpt --batch 32 --steps 100"


@dataclass(frozen=True)
class Moment:
    """Where the training stands."""

    epoch: int
    step: int
    steps: int
    loss: float
    examples_per_second: float
    communication: float  # share of the time, 0 to 1
    # For each rank the shares of computing, communicating and idle, if they are asked for.
    ranks: list[list[float]] | None = None


class Progress:
    """Show moments of the training: two a second at first, fewer in a long run; ten a second to a launcher."""

    def __init__(self, comm: Communicator, steps: int, shown: bool) -> None:
        self.comm = comm
        self.steps = steps
        self.shown = shown
        self.ranks: list[list[float]] | None = None  # to be shown with the next moment (`ranks.py`)
        self.file = os.environ.get("MINIDIST_PROGRESS")
        self._header_due = True
        self._began = time.perf_counter()
        self._begin_interval(self._began)

    def _begin_interval(self, now: float) -> None:
        self._since = now
        self._examples = 0
        self._waited = self.comm.progress.seconds

    def step(self, epoch: int, step: int, loss: float, examples: int) -> None:
        """Take note of a step, and show it if the last one shown is long enough ago, or if it is the last."""
        if not self.shown:
            return
        self._examples += examples
        now = time.perf_counter()
        seconds = now - self._since
        if seconds < (0.1 if self.file else max(0.5, (now - self._began) / 20)) and step < self.steps:
            return
        communication = (self.comm.progress.seconds - self._waited) / seconds
        speed = self._examples / seconds
        moment = Moment(epoch, step, self.steps, loss, speed, min(1.0, communication), self.ranks)
        if self.file:
            with open(self.file, "a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(moment)) + "\n")
        else:
            if self._header_due:
                say(f"{'epoch':>6}{'step':>8}{'loss':>10}{'examples/s':>13}{'in communication':>19}")
                self._header_due = False
            say(f"{epoch:>6}{step:>8}{loss:>10.4f}{moment.examples_per_second:>13,.0f}{communication:>18.0%}")
        self._begin_interval(now)


def say(text: str = "") -> None:
    """Print a line now. What cannot be printed (`... | head` has left, a disk is full) does not end the training."""
    try:
        print(text, flush=True)
    except OSError as error:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - stays open until the process ends
        if not isinstance(error, BrokenPipeError):
            print(f"nothing more can be printed ({error.strerror}); the training goes on", file=sys.stderr)


def closing_table(result: dict[str, Any], unit: str) -> str:
    """Put the result of a run into a short table, with the reason why a small model gains nothing from ranks."""
    size, cores = result["world_size"], core_count()
    lines = [
        "",
        f"test accuracy   {result['accuracy']:.2%} of {result['test_targets']:,} {unit}",
        f"time            {result['seconds']:.1f} s for {result['steps']} steps, "
        f"{result['examples_per_second']:,.0f} examples/s, {result['communication']:.0%} of it in communication",
        f"ranks           {size} on {cores} core{'s' if cores > 1 else ''}",
    ]
    purposes = sorted({purpose for sent in result["bytes_sent"] for purpose in sent})
    if purposes:
        lines += ["", "sent by         " + "".join(f"{purpose:>26}" for purpose in purposes)]
        for rank, (messages, sent) in enumerate(
            zip(result["messages_sent"], result["bytes_sent"], strict=True)
        ):
            cells = [f"{messages.get(p, 0):,} messages, {_size(sent.get(p, 0))}" for p in purposes]
            lines.append(f"  rank {rank:<9}" + "".join(f"{cell:>26}" for cell in cells))
    if result["shared_memory"]:
        lines.append(
            "  (gradients lie in memory that all ranks see: each read or write of another's part counts as sent)"
        )
    advice = _advice(result, size, cores)
    return "\n".join([*lines, *(["", advice] if advice else [])])


def _advice(result: dict[str, Any], size: int, cores: int) -> str:
    step = result["seconds"] / result["steps"]
    if size == 1:
        return "One rank. More share the work:  mpiexec -n 4 python -m minidist.train"
    if result["communication"] < 0.2 and size <= cores:
        return ""
    waiting = step * result["communication"]
    words = (
        f"Why this is not {size} times as fast as one rank: of {1e3 * step:.2f} ms a step, rank 0 spent "
        f"{1e3 * waiting:.2f} ms sending and waiting.\n"
        f"The model has {result['parameters']:,} parameters; the arithmetic of one step is over sooner than a few "
        "messages"
    )
    words += f", and {size} ranks take turns on {cores} cores.\n" if size > cores else ".\n"
    return f"{words}A larger model does gain:  {FASTER_ON_TWO}"


def _size(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:.3g} GB"


def check_writable(path: str, option: str = "--json") -> None:
    """Refuse a path that nothing could be written to, now rather than after the training."""
    directory = Path(path).absolute().parent
    if Path(path).is_dir():
        raise UserError(f"{option} {path} is a directory; name a file in it")
    if not directory.is_dir():
        raise UserError(f"{option} {path}: there is no directory {directory}; make it, or name another file")
    if not os.access(directory if _can_be_replaced(path) else path, os.W_OK):
        raise UserError(f"{option} {path}: you may not write there; name a file in a directory of yours")


def _can_be_replaced(path: str) -> bool:
    """Tell a plain file, or none yet, from a device, a pipe and a link, which must stay what they are."""
    return (Path(path).is_file() and not Path(path).is_symlink()) or not os.path.lexists(path)


def write_json(path: str, result: dict[str, Any]) -> None:
    """Write the result to a file."""
    text = json.dumps(result, indent=1) + "\n"
    write_whole(path, "--json", lambda part: part.write_text(text, encoding="utf-8"))


def write_whole(path: str, option: str, write: Callable[[Path], object]) -> None:
    """Write a file, complete or not at all; to a device (/dev/stdout) as far as it takes it."""
    temporary = Path(f"{path}.part") if _can_be_replaced(path) else Path(path)
    try:
        write(temporary)
        if temporary != Path(path):
            temporary.replace(path)
    except OSError as error:
        if temporary != Path(path):
            temporary.unlink(missing_ok=True)
        raise UserError(f"{option} {path} could not be written: {error.strerror}") from None
