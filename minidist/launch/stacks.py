"""Where a rank stands: reading the stacks that faulthandler writes.

faulthandler writes a process's Python stacks from a signal handler in C, so it works while a rank waits inside MPI
or loops in a kernel, where no Python code could answer. It only writes text; this file turns it back into frames.
"""

import contextlib
import linecache
import os
import re
import signal
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"

    @property
    def is_users(self) -> bool:
        """Tell whether this is code that the reader wrote: neither ours, nor Python's, nor an installed package's."""
        return not self.file.startswith((_PACKAGE, *_LIBRARIES, "<frozen"))


def ask_for_stacks(processes: Mapping[int, tuple[int, Path]]) -> dict[int, dict[int, list[Frame]]]:
    """Ask processes, {key: (pid, file to which its faulthandler writes)}, where each of their threads stands.

    They have half a second to answer; who does not (it is gone, or stopped) has no stacks.
    """
    if not hasattr(signal, "SIGUSR2"):  # native Windows
        return {key: {} for key in processes}
    for pid, _ in processes.values():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGUSR2)
    sizes: list[int] = []
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        before, sizes = sizes, [file.stat().st_size if file.exists() else 0 for _, file in processes.values()]
        if all(sizes) and sizes == before:
            break
        time.sleep(0.02)
    return {
        key: read_stacks(file.read_text(errors="replace")) if file.exists() else {}
        for key, (_, file) in processes.items()
    }


def read_stacks(text: str) -> dict[int, list[Frame]]:
    """Return each thread's frames, innermost first, from what faulthandler wrote; the main thread comes last."""
    stacks: dict[int, list[Frame]] = {}
    frames: list[Frame] = []
    for line in text.splitlines():
        if header := re.match(r"(?:Current thread|Thread) (0x[0-9a-f]+)", line):
            frames = stacks.setdefault(int(header[1], 16), [])
        elif frame := re.match(r'  File "(.*)", line (\d+) in (.*)', line):
            frames.append(Frame(frame[1], int(frame[2]), frame[3]))
    return stacks


def where(frames: list[Frame]) -> str:
    """Say where a rank stands: the innermost line of the user's own code, with its text if it can be read."""
    own = [frame for frame in frames if frame.is_users]
    if not (own or frames):
        return "no stack could be read"
    frame = own[0] if own else frames[0]
    code = linecache.getline(frame.file, frame.line).strip()
    return f"{frame}: {code}" if code else str(frame)
