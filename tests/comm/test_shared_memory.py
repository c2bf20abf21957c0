"""All-reduce in memory that all ranks see: the same sums, in the background too, and nothing left behind."""

import errno
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from minidist.comm import DeadlockError, MessageMismatch, NotShared, mapping
from minidist.comm.events import Listener
from minidist.comm.threads import run_ranks
from minidist.errors import UserError
from minidist.launch import mpiexec


def values(rank, n, dtype=np.float64):
    return np.random.default_rng(rank).normal(size=n).astype(dtype)


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "f2", "c16"])
def test_the_sum_is_formed_in_rank_order_and_every_rank_has_the_same_bytes(comm, dtype):
    for n in (1, 2, 3, 5, 16, 1000, 4099):
        x = comm.allocate_shared(n, dtype)
        assert (x.shape, x.dtype, x.any()) == ((n,), np.dtype(dtype), False)
        x[...] = values(comm.rank, n, dtype)
        assert comm.all_reduce(x, out=x, algorithm="shared") is x
        expected = values(0, n, dtype).astype("f4" if dtype == "f2" else dtype)
        for rank in range(1, comm.size):
            expected = expected + values(rank, n, dtype)
        assert x.tobytes() == expected.astype(dtype).tobytes()


@pytest.mark.ranks(2, 3)
def test_other_reductions_and_other_views_work_too(comm):
    x = comm.allocate_shared(24)
    for op, combine in (("max", np.maximum), ("min", np.minimum), ("prod", np.multiply)):
        x[...] = values(comm.rank, 24)
        matrix = x.reshape(4, 6)[1:3]
        comm.all_reduce(matrix, op, out=matrix, algorithm="shared")
        expected = values(0, 24)
        for rank in range(1, comm.size):
            expected = combine(expected, values(rank, 24))
        np.testing.assert_array_equal(x[6:18], expected[6:18])
        np.testing.assert_array_equal(x[:6], values(comm.rank, 24)[:6])


@pytest.mark.ranks(2, 3, 4)
def test_slices_are_reduced_in_the_background_step_after_step(comm):
    x = comm.allocate_shared(100, np.float32)
    for step in range(20):
        x[...] = comm.rank + step
        pieces = [x[start : start + 30] for start in (0, 30, 60)]
        requests = [comm.iall_reduce(piece, out=piece) for piece in pieces]
        small = comm.iall_reduce(np.array(comm.rank))  # what is sent goes on beside it
        for request in reversed(requests):
            request.wait()
        total = sum(range(comm.size))
        assert small.wait() == total
        assert (x[:90] == total + comm.size * step).all()
        assert (x[90:] == comm.rank + step).all()


@pytest.mark.ranks(2, 4)
def test_it_is_chosen_by_itself_and_counts_what_the_ring_would_send(comm):
    x = comm.allocate_shared(120)
    comm.all_reduce(x, out=x, purpose="gradient")
    assert comm.counters["gradient"] == (2 * (comm.size - 1), 2 * (comm.size - 1) * x.nbytes // comm.size)
    before = comm.counters["gradient"]
    comm.all_reduce(x, purpose="gradient")  # a new array for the result: sent
    sent = comm.counters["gradient"][1] - before[1]
    assert sent in (x.nbytes, 2 * x.nbytes)  # recursive doubling


@pytest.mark.ranks(2, 3)
def test_what_is_over_at_once_and_what_waits_may_take_turns(comm):
    x = comm.allocate_shared(1000, np.float32)
    for step in range(30):
        x[...] = comm.rank + step
        if step % 5 == comm.rank:
            time.sleep(0.002)  # now and then one rank comes late, and the others cannot end at once
        request = comm.iall_reduce(x[:500], out=x[:500]) if step % 2 else None
        comm.all_reduce(x[500:], out=x[500:]) if step % 3 else None
        assert comm.all_reduce(np.array(1)) == comm.size
        if request is not None:
            request.wait()
        total = sum(range(comm.size)) + comm.size * step
        assert (x[:500] == (total if step % 2 else comm.rank + step)).all()
        assert (x[500:] == (total if step % 3 else comm.rank + step)).all()


@pytest.mark.ranks(2)
def test_what_may_not_be_summed_at_once_is_refused_or_goes_the_long_way(comm):
    class Counts(Listener):
        seen = 0

        def before(self, event):
            self.seen += 1

    x, truth, listener = comm.allocate_shared(10), comm.allocate_shared(10, bool), Counts()
    x[...] = 1
    fixed = x[:5]
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        comm.all_reduce(fixed, out=fixed)
    with pytest.raises(ValueError, match="purpose is 'none'"):
        comm.all_reduce(x, out=x, purpose="none")
    with pytest.raises(TypeError, match="a sum of bool is refused"):
        comm.all_reduce(truth, out=truth)
    comm.listeners.append(listener)
    comm.all_reduce(x, out=x)
    comm.listeners.remove(listener)
    assert listener.seen == 1
    assert (x == 2).all()
    comm.all_reduce(x, out=x)
    assert (x == 4).all()


@pytest.mark.ranks(2)
@pytest.mark.parametrize("second_is_held", [False, True])
def test_sums_in_flight_begin_in_the_order_of_their_calls_on_every_rank(comm, second_is_held):
    class Gate:
        peer, source, count, done, open = None, -1, 0, False, False

        def test(self):
            return self.open

    class HoldsBack(Listener):
        def __init__(self, gates):
            self.gates = list(gates)

        def before(self, event):
            gate = self.gates.pop(0)
            return gate and [gate]

    x, first, second = comm.allocate_shared(300), Gate(), Gate()
    x[...] = 1
    held = [first, second if second_is_held else None] if comm.rank == 1 else [None, None]
    comm.listeners.append(HoldsBack(held))
    requests = [comm.iall_reduce(part, out=part) for part in (x[:200], x[200:])]
    second.open = True  # before the first
    comm.progress.advance()
    first.open = True
    for request in reversed(requests):
        request.wait()
    comm.listeners.clear()
    assert (x == 2).all()


@pytest.mark.ranks(4)
def test_each_communicator_has_its_own_and_sends_what_is_anothers(comm):
    half = comm.split(comm.rank % 2)
    x, y = half.allocate_shared(10), comm.allocate_shared(10)
    x[...] = y[...] = comm.rank
    half.all_reduce(x, out=x, algorithm="shared")
    assert (x == sum(half.members)).all()
    half.all_reduce(y, out=y)
    assert (y == sum(half.members)).all()
    with pytest.raises(ValueError, match="allocate_shared"):
        half.all_reduce(y, out=y, algorithm="shared")
    with pytest.raises(ValueError, match="reduces in place"):
        comm.all_reduce(np.ones(3), algorithm="shared")


@pytest.mark.ranks(2, 3)
def test_ranks_that_give_different_stretches_are_told_and_can_go_on(comm):
    x = comm.allocate_shared(10)
    x[...] = 1
    mine = x[: 5 + comm.rank]
    with pytest.raises(MessageMismatch, match=r"stretches are \[\(0, 40\), \(0, 48\).*nothing was written"):
        comm.all_reduce(mine, out=mine)
    assert (x == 1).all()
    comm.all_reduce(x, out=x)
    assert (x == comm.size).all()


@pytest.mark.ranks(2, 3)
def test_memory_without_numbers_is_memory_too(comm):
    x = comm.allocate_shared(0)
    assert comm.all_reduce(x, out=x).shape == (0,)


@pytest.mark.ranks(2, 3)
def test_ranks_that_ask_for_different_memory_are_told(comm):
    with pytest.raises(MessageMismatch, match=r"asks for 1\d numbers of float64, the ranks for \[10, 11"):
        comm.allocate_shared(10 + comm.rank)
    with pytest.raises(MessageMismatch, match="the same n >= 0 and dtype"):
        comm.allocate_shared(10, np.float32 if comm.rank else np.float64)
    with pytest.raises(MessageMismatch, match="asks for -1 numbers"):
        comm.allocate_shared(-1)


def test_a_rank_that_does_not_come_is_a_deadlock_on_threads():
    def on_rank(comm):
        x = comm.allocate_shared(4)
        if comm.rank == 0:
            comm.all_reduce(x, out=x)

    with pytest.raises(DeadlockError, match="rank 1 has left"):
        run_ranks(on_rank, 2)


@pytest.mark.ranks(2, 3, transports=("mpi",))
def test_ranks_on_different_machines_are_told_together(comm):
    real = mapping.place
    mapping.place = lambda: np.full(32, 1 + comm.rank // (comm.size - 1), np.uint8)
    try:
        with pytest.raises(NotShared, match=f"rank {comm.size - 1} of 'world' is on another machine"):
            comm.allocate_shared(10)
        mapping.place = lambda: np.zeros(32, np.uint8)
        with pytest.raises(NotShared, match="needs Linux"):
            comm.allocate_shared(10)
    finally:
        mapping.place = real


@pytest.mark.ranks(2, 3, transports=("mpi",))
def test_no_room_is_an_error_on_all_ranks_before_anything_is_written(comm):
    gc.collect()  # what tests before have left is closed now, and not in between
    before = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if comm.rank == 0:  # a file in memory is a file: the limit for files holds
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(
            NotShared, match=r"rank \d of 'world' cannot have .* MB of shared memory: File too large"
        ):
            comm.allocate_shared(1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    real = os.posix_fallocate

    def full(fd, start, length):
        raise OSError(errno.ENOSPC, "no space")

    if comm.rank == comm.size - 1:
        os.posix_fallocate = full
    try:
        with pytest.raises(NotShared, match=f"rank {comm.size - 1} of 'world' cannot have .*: No space left"):
            comm.allocate_shared(1 << 20)
    finally:
        os.posix_fallocate = real
    assert len(os.listdir("/proc/self/fd")) == before
    assert comm.allocate_shared(10).size == 10


@pytest.mark.ranks(2, transports=("mpi",))
def test_the_memory_has_no_name_and_is_gone_with_the_array(comm):
    def mapped():
        return [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:minidist" in line]

    names = set(os.listdir("/dev/shm"))
    before = len(mapped())
    x = comm.allocate_shared(1 << 16)
    assert len(mapped()) == before + 1
    assert not [name for name in set(os.listdir("/dev/shm")) - names if "minidist" in name]
    view = x[5:10]
    del x
    comm.all_reduce(view, out=view, algorithm="shared")  # a view keeps it
    del view
    assert len(mapped()) == before


def test_a_rank_that_is_killed_leaves_no_memory_behind(tmp_path):
    try:
        command = [mpiexec.find_mpiexec(), "-n", "3", sys.executable, "-c", KILLED]
    except UserError as without:
        pytest.skip(str(without))
    done = subprocess.run(
        command,
        env=mpiexec.environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode != 0
    pids = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
    assert len(pids) == 3
    # The memory has no name (see the test before), so it is gone once nobody is left who could keep it alive.
    until = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/maps").exists() and Path(f"/proc/{pid}/maps").read_bytes() for pid in pids):
        assert time.monotonic() < until, "a rank has outlived the job"
        time.sleep(0.01)


KILLED = f"""
import os, signal
from minidist.comm import world
comm = world()
x = comm.allocate_shared(100000)
x[...] = 1
print(os.getpid(), flush=True)
comm.all_reduce(x, out=x, algorithm="shared")
comm.barrier()
if comm.rank == 1:
    os.kill(os.getpid(), {int(signal.SIGKILL)})
while True:
    comm.all_reduce(x, out=x, algorithm="shared")
"""
