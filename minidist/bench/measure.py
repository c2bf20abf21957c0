"""Take times fairly: what is compared runs in turn, and the median of each counts.

    round 1   ours ours ours | NumPy NumPy NumPy       whatever disturbs the machine for a while, a neighbour or a
    round 2   NumPy NumPy NumPy | ours ours ours       change of clock, disturbs both; the order changes with each
    round 3   ours ours ours | NumPy NumPy NumPy       round, so that none always finds the caches of the other

A block of calls in which another process had the core for a while is thrown away.

Read next: `processor.py` (what is the most that could be reached?), then the suites: `kernels.py`, `step.py`,
`comm.py`.
"""

import contextlib
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, NamedTuple

from minidist.trace.processor import Processor

SECONDS_PER_BLOCK = (
    2e-3  # of calls in a row: long beside the clock's resolution, and a cache is warm again soon
)
LEAST_ROUNDS = 5
ALMOST_ALL = 0.9  # of the time of a block, spent in this process: nobody else had the core


class Block(NamedTuple):
    """Some calls in a row: seconds per call, and which share of them this process had a processor."""

    seconds: float
    share: float


@dataclass(frozen=True)
class Case:
    """Something to measure: our way of doing it, and those of others.

    flops: multiplications and additions it needs. nbytes: what it must read and write at least, 0 if that is no
    limit. Both are those of the task, whoever does it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    ours: Callable[[], object]
    peers: Mapping[str, Callable[[], object]]
    flops: float
    nbytes: float = 0.0


@dataclass(frozen=True)
class Row:
    """One comparison, measured. `roof_seconds` is None where no roof is known."""

    suite: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    threads: int
    ours_seconds: float
    peer: str
    peer_seconds: float
    flops: float = 0.0
    nbytes: float = 0.0
    roof_seconds: float | None = None

    @property
    def ratio(self) -> float:
        """How many times faster we are: above 1 where we need less time."""
        return self.peer_seconds / self.ours_seconds

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` writes of it."""
        return {
            "suite": self.suite,
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "threads": self.threads,
            "ours_seconds": self.ours_seconds,
            "peer": self.peer,
            "peer_seconds": self.peer_seconds,
            "ratio": self.ratio,
        }


def medians(functions: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Call the functions in turn for about so many seconds in all; return the median seconds per call of each."""
    calls = []
    for function in functions:
        function()  # the first call finds cold caches, and memory that was never touched
        began = perf_counter()
        function()
        calls.append(max(1, round(SECONDS_PER_BLOCK / (perf_counter() - began))))
    blocks: list[list[Block]] = [[] for _ in functions]
    order = list(zip(functions, calls, blocks, strict=True))
    began = perf_counter()
    while not enough(blocks, perf_counter() - began, seconds):
        for function, n, measured in order:
            start, start_here = perf_counter(), process_time()
            for _ in range(n):
                function()
            took, took_here = perf_counter() - start, process_time() - start_here
            measured.append(Block(took / n, took_here / took))
        order.reverse()
    return [statistics.median(undisturbed(measured)) for measured in blocks]


def enough(blocks: list[list[Block]], passed: float, seconds: float) -> bool:
    """Say whether the time is over; on a busy machine it is made longer, up to three times."""
    if len(blocks[0]) < LEAST_ROUNDS or passed < seconds:
        return False
    quiet = min(sum(block.share > ALMOST_ALL for block in measured) for measured in blocks)
    return quiet >= LEAST_ROUNDS or passed > 3 * seconds


def undisturbed(blocks: list[Block]) -> list[float]:
    """Return the times of those blocks in which no other process took the core; of the best few if all were hit."""
    by_share = sorted(blocks, key=lambda block: block.share, reverse=True)
    quiet = sum(block.share > ALMOST_ALL for block in blocks)
    return [block.seconds for block in by_share[: max(quiet, LEAST_ROUNDS)]]


def measure(
    suite: str, cases: Iterable[Case], processor: Processor, threads: int, seconds: float
) -> Iterator[Row]:
    """Measure each case for about so many seconds; give one row for each of its peers."""
    for case in cases:
        ours, *theirs = medians([case.ours, *case.peers.values()], seconds)
        roof = processor.roof_seconds(case.dtype, case.flops, case.nbytes)
        for peer, peer_seconds in zip(case.peers, theirs, strict=True):
            yield Row(
                suite,
                case.name,
                case.shape,
                case.dtype,
                threads,
                ours,
                peer,
                peer_seconds,
                case.flops,
                case.nbytes,
                roof,
            )


@contextlib.contextmanager
def pinned(cores: int) -> Iterator[None]:
    """Bind this process to so many cores while it measures, where the system can do that.

    Moved to another core in mid-measurement, a process finds that core's caches empty.
    """
    if not hasattr(os, "sched_setaffinity"):  # macOS and Windows bind nobody
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[-cores:])  # the last: the first serves most interrupts
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
