"""The recorder: each rank's last 256 operations, in memory that outlives it. Always on where there are several ranks.

    begins -> | all_reduce #7 on 'world', float32 (10,), program.py:12, begun |    packed into the ring's next place
    waits  ->                                                          waits       one number of it changes
    ends   ->                                                          done

It must cost nothing that is noticed: no event is made, and no listener is told. What a program says again and again
(call, dtype, shape, line) is turned into text once and then copied; the rest is numbers. Some 3 us for an operation.

With MINIDIST_RECORDER=DIR the memory is a file in DIR for each rank. `minidist.launch` gives a folder of its own, reads
it when a rank dies, and removes it. Without one the memory has no name anywhere, and ends with the rank.

Read `minidist/recorded.py` beside this: the layout, and who reads it.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from minidist.recorded import (
    BEGUN,
    DONE,
    END,
    END_AT,
    FAILED,
    HEAD,
    KEPT,
    NONE,
    PLACE,
    SIZE,
    STATE_AT,
    WAITS,
    WHO,
    Recorded,
    read,
)

if TYPE_CHECKING:
    import numpy as np

    from minidist.comm.core import Core

ROOM = PLACE - HEAD.size  # bytes for the facts
CALLS = 1024  # whose text is kept: a program whose shapes differ in every step must not fill the memory


class Recorder:
    """Write down what one rank does."""

    def __init__(self, memory: mmap.mmap, rank: int, size: int) -> None:
        self.memory, self.rank = memory, rank
        self.number = 0  # operations so far
        self.step = NONE  # of the training; whoever counts steps says it here
        self._texts: dict[tuple[Any, ...], bytes] = {}
        memory[:] = bytes(SIZE)  # also takes the pages now, so that the first operations need not
        WHO.pack_into(memory, 0, size, os.getpid(), time.time_ns())

    def begins(
        self, comm: Core, call: str, line: str, array: np.ndarray | None, facts: dict[str, Any]
    ) -> int:
        """Write down an operation that begins; give its number."""
        get = facts.get
        plain = array is None or array.flags.c_contiguous
        said = (
            comm.key, call, line, get("dtype"), get("shape"), plain, get("reduction"), get("root"), get("dest")
        )  # fmt: skip
        text = self._texts.get(said)
        if text is None:
            text = _text(comm.name, *said)
            if len(self._texts) == CALLS:
                self._texts.clear()
            self._texts[said] = text
        number = self.number + 1
        at = PLACE * (1 + number % KEPT)
        # The text first: whoever is killed in between has not begun it.
        self.memory[at + HEAD.size : at + HEAD.size + len(text)] = text
        HEAD.pack_into(
            self.memory, at, number, get("sequence", NONE), self.step, get("peer", NONE), get("tag", NONE),
            time.monotonic_ns(), 0, BEGUN, len(text),
        )  # fmt: skip
        self.number = number
        return number

    def waits(self, number: int) -> None:
        """Write down that the rank is about to sleep, because the operation cannot go on yet."""
        if self.number - number < KEPT:
            self.memory[PLACE * (1 + number % KEPT) + STATE_AT] = WAITS

    def ends(self, number: int, failed: bool = False) -> None:
        """Write down that an operation has ended."""
        if self.number - number < KEPT:  # else its place has another operation now
            at = PLACE * (1 + number % KEPT)
            END.pack_into(self.memory, at + END_AT, time.monotonic_ns(), FAILED if failed else DONE)

    def take_back(self) -> None:
        """Forget the last operation that began: it begins once more in another way."""
        self.number -= 1

    def begin_anew(self) -> None:
        """Forget everything."""
        self.memory[PLACE:] = bytes(SIZE - PLACE)
        self.number = 0

    def operations(self) -> list[Recorded]:
        """Give what has been written, the oldest first."""
        return read(self.memory[:], self.rank)


def _text(
    name: str, key: Any, call: str, line: str, dtype: Any, shape: Any, plain: bool, *given: Any
) -> bytes:
    """Give the facts of a call as JSON that fits into a place."""
    op, root, dest = given
    facts = {
        "call": call,
        "comm": name[:40],
        "key": str(key)[-60:],
        "op": op,
        "root": root,
        "dest": dest,
        "dtype": None if dtype is None else str(dtype)[:20],
        "shape": None if shape is None else shape[:6],
        "order": "C" if plain else "not C",
        "line": line,
    }
    while len(text := json.dumps(facts).encode()) > ROOM:
        facts["line"] = facts["line"][20:]  # a long path: its end says most
    return text


def record(comm: Core) -> None:
    """Write down what `comm`, and all that will be split from it, does. No collective.

    On threads only with MINIDIST_RECORDER: without a file the memory would end with its reader.
    """
    directory = os.environ.get("MINIDIST_RECORDER")
    if comm.size == 1 or (comm.transport == "threads" and not directory):
        return
    memory = None
    if directory:
        try:
            memory = _map_file(directory, comm.rank)
        except OSError as error:
            if comm.rank == 0:
                problem = f"MINIDIST_RECORDER={directory}: {error.strerror}; operations are not kept there"
                print(f"minidist: {problem}", file=sys.stderr, flush=True)
    comm.recorder = Recorder(memory or mmap.mmap(-1, SIZE), comm.rank, comm.size)


def _map_file(directory: str, rank: int) -> mmap.mmap:
    """Map this rank's file of a folder; a file that is there is used again, never cut: somebody may have mapped it."""
    os.makedirs(directory, exist_ok=True)
    fd = os.open(os.path.join(directory, f"recorder.{rank}"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, SIZE)  # a full disk is an error here, not a SIGBUS later
        os.truncate(fd, SIZE)
        return mmap.mmap(fd, SIZE)
    finally:
        os.close(fd)
