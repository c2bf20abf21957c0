"""One clock for all ranks: how far each rank's is from rank 0's, found by ping-pong.

    rank r   t0 ----\\                /---> t3        offset = ((t1 - t0) + (t2 - t3)) / 2
    rank 0           \\--> t1   t2 --/                round trip = (t3 - t0) - (t2 - t1)

Were both ways equally long, the offset would be exact; as they are not, it is wrong by at most half of the round trip.
So the fastest of ROUNDS round trips is taken. Where the offset may as well be 0, as on one machine, it is 0, and FEW
are enough: on busy cores each takes half a millisecond. Clocks also go at different speeds (a few parts in a million):
they are compared before and after, and in between the offset lies on a straight line.

Mills, "Internet Time Synchronization: The Network Time Protocol", IEEE Trans. Communications, 1991, section 4.
Read next: `gather.py`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minidist.comm import Communicator

ROUNDS, FEW = 20, 3


@dataclass(frozen=True)
class Moment:
    """At `time` on this rank's clock, rank 0's showed time + offset, give or take round_trip / 2; in seconds."""

    time: float
    offset: float
    round_trip: float


def compare_clocks(comm: Communicator, clock: Callable[[], float]) -> Moment:
    """Compare this rank's clock with rank 0's; a collective of `comm`, with nothing in flight."""
    line, tag = comm.quiet(), comm.endpoint.largest_tag
    theirs, last = np.empty(2), np.zeros(1, bool)
    if line.rank == 0:
        for rank in range(1, line.size):
            last[0] = False
            while not last:
                line.recv(last, rank, tag)
                came = clock()
                line.send(np.array([came, clock()]), rank, tag)
        return Moment(clock(), 0.0, 0.0)
    best = Moment(0.0, 0.0, np.inf)
    for number in range(1, ROUNDS + 1):
        last[0] = number == ROUNDS or (number >= FEW and best.offset == 0)
        sent = clock()
        line.send(last, 0, tag)
        line.recv(theirs, 0, tag)
        back = clock()
        came, left = theirs.tolist()
        round_trip, offset = (back - sent) - (left - came), ((came - sent) + (left - back)) / 2
        if round_trip < best.round_trip:
            best = Moment(back, 0.0 if abs(offset) <= round_trip / 2 else offset, round_trip)
        if last:
            break
    return best


def one_way(comm: Communicator, nbytes: int, rounds: int) -> float:
    """Give the median seconds of a message of so many bytes between rank 0 and rank 1, half of its way there and back.

    A collective of these two.
    """
    there, back, peer = np.zeros(nbytes, np.uint8), np.empty(nbytes, np.uint8), 1 - comm.rank
    seconds = []
    for _ in range(rounds):
        comm.barrier()
        began = time.perf_counter()
        if comm.rank == 0:
            comm.send(there, peer)
            comm.recv(back, peer)
        else:
            comm.recv(back, peer)
            comm.send(there, peer)
        seconds.append((time.perf_counter() - began) / 2)
    return statistics.median(seconds)


def on_rank_0(moments: list[Moment], time: float) -> float:
    """Say what rank 0's clock showed when this rank's showed `time`; on the line through two moments."""
    first, last = moments[0], moments[-1]
    share = (time - first.time) / (last.time - first.time) if last.time > first.time else 0.0
    return time + first.offset + share * (last.offset - first.offset)
