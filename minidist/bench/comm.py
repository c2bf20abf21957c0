"""Suite "comm": all-reduce over 2 ranks beside MPI's own, and what communication costs a training step.

The ranks are started by `minidist.launch`, each on a core of its own where there are enough. All ways take turns in
one job; before each call the ranks meet at a barrier, and the time of a call is that of the slower rank. Read next:
`roofline.py`.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from minidist.bench.measure import LEAST_ROUNDS, Row
from minidist.bench.step import Mlp, our_step
from minidist.comm import Communicator
from minidist.launch import launch

RANKS = 2
SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)  # bytes
WAYS = ("shared", "ring", "recursive_doubling", "MPI")  # the first needs memory that both ranks see
TRAINED = Mlp((784, 1024, 1024, 10), 256)  # the global batch
LIMIT = 300.0  # seconds for a job; far more than it takes


def rows(quick: bool, seconds: float) -> Iterator[Row]:
    """Measure every size, then the training step."""
    for nbytes in SIZES[::3] if quick else SIZES:
        times = launch(all_reduce_medians, RANKS, nbytes, seconds, timeout=LIMIT)[0]
        for way in WAYS[:-1]:
            shape, name = (nbytes // 4,), f"all_reduce, {way}"
            yield Row(
                "comm", name, shape, "float32", RANKS, times[way], "MPI.Allreduce", times["MPI"], 0, nbytes
            )
    if not quick:
        with_sync, alone = launch(step_medians, RANKS, seconds, timeout=LIMIT)[0]
        name, peer = f"data parallel, {TRAINED.name}", "no communication"
        yield Row("comm", name, TRAINED.shape, "float32", RANKS, with_sync, peer, alone)


def all_reduce_medians(comm: Communicator, nbytes: int, seconds: float) -> dict[str, float]:
    """Return the median seconds of an all-reduce of so many bytes, by name; run by every rank."""
    keep_to_one_core(comm)
    x = np.zeros(nbytes // 4, np.float32)  # sums of zeros stay zeros, however often
    shared = comm.allocate_shared(x.size, x.dtype)
    endpoint: Any = comm.endpoint  # MPI as its user would call it, without our polite waits
    functions = {
        "shared": partial(comm.all_reduce, shared, out=shared),
        "ring": partial(comm.all_reduce, x, out=x, algorithm="ring"),
        "recursive_doubling": partial(comm.all_reduce, x, out=x, algorithm="recursive_doubling"),
        "MPI": partial(endpoint.private.Allreduce, endpoint.mpi.IN_PLACE, x, endpoint.mpi.SUM),
    }
    medians = medians_of_ranks(comm, [functions[way] for way in WAYS], seconds)
    return dict(zip(WAYS, medians, strict=True))


def step_medians(comm: Communicator, seconds: float) -> list[float]:
    """Return the median seconds of a data-parallel step, and of one without communication; run by every rank."""
    keep_to_one_core(comm)
    half = Mlp(TRAINED.sizes, TRAINED.batch // comm.size)
    return medians_of_ranks(comm, [our_step(TRAINED, comm), our_step(half, comm.alone("alone"))], seconds)


def medians_of_ranks(
    comm: Communicator, functions: Sequence[Callable[[], object]], seconds: float
) -> list[float]:
    """Let all ranks call the functions in turn; return the medians of the slower rank's seconds."""
    times: list[list[float]] = [[] for _ in functions]
    order = list(zip(functions, times, strict=True))
    goes_on = np.ones((), np.int64)
    end = perf_counter() + seconds
    while len(times[0]) <= LEAST_ROUNDS or goes_on:
        for function, measured in order:
            comm.barrier()
            began = perf_counter()
            function()
            measured.append(perf_counter() - began)
        order.reverse()
        goes_on = comm.broadcast(np.array(perf_counter() < end, np.int64))  # one rank's clock decides for all
    table = np.array([measured[1:] for measured in times])  # the first call touches memory for the first time
    return [statistics.median(row) for row in comm.all_reduce(table, op="max").tolist()]


def keep_to_one_core(comm: Communicator) -> None:
    """Bind this rank to a core of its own, where there are enough and the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) >= comm.size:
            os.sched_setaffinity(0, cores[comm.rank : comm.rank + 1])
