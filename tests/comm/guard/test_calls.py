"""Calls that do not fit together, and ranks that wait for ever: found, named, and told once."""

import json

import numpy as np
import pytest

from minidist.comm import CollectiveMismatch, CommError, DeadlockError, guard
from minidist.comm.guard.graph import Message, Operation, Standing, stuck
from minidist.comm.threads import run_ranks


def fault(program, size):
    """Give what a program raises on ranks that are watched."""

    def watched(comm):
        guard.watch(comm)
        program(comm)

    with pytest.raises(CommError) as caught:
        run_ranks(watched, size)
    return caught.value


def another_operation(comm):
    comm.broadcast(np.ones(16)) if comm.rank == 1 else comm.all_reduce(np.ones(16))


def another_dtype(comm):
    comm.all_reduce(np.ones(16, np.float32 if comm.rank == 1 else np.float64))


def another_shape(comm):
    comm.all_reduce(np.ones((3, 4) if comm.rank == 1 else (2, 6)))


def another_op(comm):
    comm.all_reduce(np.ones(2), "max" if comm.rank == 1 else "sum")


def another_root(comm):
    comm.reduce(np.ones(2), root=comm.rank % 2)


def another_form(comm):
    comm.iall_reduce(np.ones(2)).wait() if comm.rank == 1 else comm.all_reduce(np.ones(2))


def no_split(comm):
    comm.barrier() if comm.rank == 1 else comm.split(0)


MISMATCHES = [
    (another_operation, "in the call"),
    (another_dtype, "in the dtype"),
    (another_shape, "in the shape"),
    (another_op, "in op"),
    (another_root, "in root"),
    (another_form, "in the call"),
    (no_split, "in the call"),
]


@pytest.mark.parametrize(("program", "what"), MISMATCHES)
def test_collectives_that_differ_are_refused_with_both_lines(program, what, monkeypatch, tmp_path):
    monkeypatch.setenv("MINIDIST_GUARD_REPORT", str(tmp_path / "report"))
    error = fault(program, 3)
    assert isinstance(error, CollectiveMismatch)
    assert (error.kind, error.ranks) == ("mismatch", (0, 1, 2))
    assert what in str(error).partition("\n")[0]
    line = f"{__file__}:{program.__code__.co_firstlineno + 1}"
    assert error.lines == dict.fromkeys(range(3), line)
    (told,) = map(json.loads, (tmp_path / "report").read_text().splitlines())
    assert told["text"] == str(error)


@pytest.mark.ranks(2, 4)
def test_after_a_refusal_arrays_are_untouched_and_ranks_go_on(comm):
    guard.watch(comm)
    for length in (4, 200_000):  # the long one is summed through memory that is made at the first call
        x = np.full(length, 2.0)
        with pytest.raises(CollectiveMismatch, match="differs between ranks in the call"):
            comm.broadcast(x) if comm.rank == 0 else comm.all_reduce(x, out=x)
        assert np.all(x == 2.0)
        assert np.all(comm.all_reduce(x) == 2.0 * comm.size)
    rows = comm.all_gather(np.ones((comm.rank, 2)))  # row counts may differ
    assert rows.shape == (comm.size * (comm.size - 1) // 2, 2)
    assert np.all(
        comm.all_reduce(np.asfortranarray(np.ones((2, 3))) if comm.rank else np.ones((2, 3))) == comm.size
    )


def both_receive(comm):
    x = np.empty(3)
    comm.recv(x, 1 - comm.rank)


def both_send(comm):
    comm.send(np.ones(3), 1 - comm.rank)


def another_tag(comm):
    x = np.ones(3)
    comm.send(x, 1, tag=5) if comm.rank == 0 else comm.recv(x, 0, tag=7)


def one_too_many(comm):
    comm.barrier() if comm.rank == 0 else None


def one_is_elsewhere(comm):
    x = np.ones(3)
    comm.barrier() if comm.rank == 0 else comm.recv(x, 0)


def two_communicators(comm):
    other = comm.split(0, name="other")
    other.barrier() if comm.rank == 0 else comm.barrier()


STUCK = [
    (both_receive, "cycle", (0, 1)),
    (both_send, "buffered send", (0, 1)),
    (another_tag, "unmatched receive", (0, 1)),
    (one_too_many, "left", (0, 1)),
    (one_is_elsewhere, "missing rank", (0, 1)),
    (two_communicators, "communicator", (0, 1)),
]


@pytest.mark.parametrize(("program", "kind", "ranks"), STUCK)
def test_ranks_that_can_never_go_on_are_told_why(program, kind, ranks, monkeypatch, tmp_path):
    monkeypatch.setenv("MINIDIST_GUARD_REPORT", str(tmp_path / "report"))
    error = fault(program, 2)
    assert isinstance(error, DeadlockError)
    assert (error.kind, error.ranks) == (kind, ranks)
    assert set(error.lines) == ({0} if kind == "left" else set(ranks))  # who has left is nowhere
    assert all(line.startswith(__file__) for line in error.lines.values())
    (told,) = map(json.loads, (tmp_path / "report").read_text().splitlines())
    assert (told["kind"], told["text"]) == (kind, str(error))


@pytest.mark.ranks(4, transports=("mpi",))
def test_processes_find_a_cycle_too_all_raise_the_same_and_go_on(comm):
    guard.watch(comm)
    x = np.empty(3)
    with pytest.raises(DeadlockError) as caught:
        comm.recv(x, (comm.rank + 1) % comm.size)
    assert (caught.value.kind, caught.value.ranks) == ("cycle", (0, 1, 2, 3))
    texts = comm.all_gather(np.array([sum(map(ord, str(caught.value)))]))
    assert np.all(texts == texts[0])


def test_without_its_detector_a_mismatch_is_not_refused(monkeypatch):
    monkeypatch.setenv("MINIDIST_GUARD_WITHOUT", "mismatch")
    assert fault(another_operation, 3).kind != "mismatch"
    monkeypatch.setenv("MINIDIST_GUARD_WITHOUT", "deadlock")
    assert fault(both_receive, 2).kind == ""
    monkeypatch.setenv("MINIDIST_GUARD_WITHOUT", "send")
    run_ranks(lambda comm: (guard.watch(comm), both_send(comm)), 2)  # small messages are buffered


def operation(messages, members=(0, 1, 2)):
    return Operation("recv", "world", "()", members, "?", messages=tuple(messages))


def test_who_is_stuck_is_the_largest_set_that_waits_for_itself():
    from_ = {peer: Message(False, peer, 0) for peer in range(3)}
    waits = {
        0: Standing(0, "waits", (operation([from_[1]]),)),
        1: Standing(1, "waits", (operation([from_[0]]),)),
    }
    assert stuck({**waits, 2: Standing(2, "runs")}) == {0, 1}
    # Rank 1 waits for one that runs, and may then serve rank 0.
    assert (
        stuck({0: waits[0], 1: Standing(1, "waits", (operation([from_[2]]),)), 2: Standing(2, "runs")})
        == set()
    )
    # From anyone: as long as one of them runs, it may come.
    anyone = Standing(1, "waits", (operation([Message(False, None, 0)]),))
    assert stuck({0: waits[0], 1: anyone, 2: Standing(2, "runs")}) == set()
    assert stuck({0: waits[0], 1: anyone, 2: Standing(2, "left")}) == {0, 1}
    # A message is under way: both of its sides are there.
    sends = Standing(1, "waits", (operation([Message(True, 0, 0)]),))
    assert stuck({0: waits[0], 1: sends}) == set()
    # What rank 1 has in flight beside its wait can go on, and may serve rank 0.
    busy = Standing(1, "waits", (operation([from_[0]]), operation([from_[2]])))
    assert stuck({0: waits[0], 1: busy, 2: Standing(2, "runs")}) == set()
