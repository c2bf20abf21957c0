"""What the doctor measures with real ranks: how many start, how fast they talk, how far their clocks are apart.

One job of a few more ranks than most machines have cores is started, as a class would on its laptops. In it the first
two ranks play ping-pong, and then all-reduce a vector, on two ranks and on four:

    rank 0   |--- x -->|        |<-- x ---|        half of a round trip is what one message costs; and it says how
    rank 1             |--------|                  far apart their clocks are (`trace/clocks.py`)

Medians over some milliseconds: enough to see what is wrong by a factor, too little to compare machines (`python -m
minidist.bench comm` does that).
"""

import statistics
import time
from dataclasses import dataclass

import numpy as np

from minidist.comm import Communicator
from minidist.launch import Job
from minidist.trace.clocks import compare_clocks, one_way

RANKS = 8
ROUNDS = 200
LARGE = 2**20  # bytes
LIMIT = 30.0  # seconds for each call


@dataclass(frozen=True)
class Speed:
    """What was measured; `error` says why it was not."""

    ranks: int = 0  # that started
    start: float = 0.0  # seconds until all of them could talk
    latency: float = 0.0  # seconds of a message of 8 bytes, one way
    bandwidth: float = 0.0  # bytes per second of a message of LARGE bytes
    reduced: tuple[float, float] = (0.0, 0.0)  # seconds of an all-reduce of LARGE bytes on 2 and on 4 ranks
    clock: float = 0.0  # seconds between the clocks of rank 0 and rank 1, as far as that can be told
    error: str = ""


def measure(ranks: int = RANKS) -> Speed:
    """Start `ranks` ranks, at least four, and let them measure."""
    began = time.perf_counter()
    try:
        with Job(ranks) as job:
            start = time.perf_counter() - began
            small, clock = job.call(ping_pong, (8,), ranks=2, timeout=LIMIT)[0].value
            large, _ = job.call(ping_pong, (LARGE,), ranks=2, timeout=LIMIT)[0].value
            two, four = (job.call(all_reduce, ranks=n, timeout=LIMIT)[0].value for n in (2, 4))
    except (RuntimeError, OSError, TypeError) as why:  # the last: a rank came to no value
        return Speed(error=str(why).strip().splitlines()[-1])
    return Speed(ranks, start, small, LARGE / large, (two, four), clock)


def ping_pong(comm: Communicator, nbytes: int) -> tuple[float, float]:
    """Return the seconds of a message one way, and by how much rank 1's clock is ahead of rank 0's."""
    behind = np.array(compare_clocks(comm, lambda: time.perf_counter()).offset)
    return one_way(comm, nbytes, ROUNDS), -float(comm.broadcast(behind, root=1))


def all_reduce(comm: Communicator) -> float:
    """Return the median seconds of an all-reduce of LARGE bytes in memory that the ranks share, if they can."""
    x = np.zeros(LARGE // 4, np.float32)
    times = []
    for _ in range(ROUNDS // 4):
        comm.barrier()
        began = time.perf_counter()
        comm.all_reduce(x, out=x)
        times.append(time.perf_counter() - began)
    return statistics.median(times)
