"""Requests that are not used as they must be: each is named with the line that posted it."""

import inspect
import itertools
import json
import threading

import numpy as np
import pytest

from minidist.comm import CommError, DeadlockError, MessageMismatch, RequestFault
from minidist.comm.guard import poison
from minidist.comm.guard.requests import Requests, digest
from minidist.comm.threads import run_ranks


def watched(program, ranks=2):
    """Run a program on threads with its requests watched; give the ranks' results."""

    def one_rank(comm):
        comm.listeners.append(Requests())
        return program(comm)

    return run_ranks(one_rank, ranks)


def line_of(program, mark):
    """Give "file:line" of the line of a program that ends in `# mark`."""
    lines, first = inspect.getsourcelines(program)
    (at,) = [first + number for number, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}")]
    return f"{__file__}:{at}"


def changes_what_it_sends(comm):
    x = np.arange(2000.0)
    if comm.rank == 0:
        request = comm.isend(x, 1)  # posted
        x[1999] += 1
        request.wait()
    else:
        comm.recv(x, 0)


def changes_what_it_sums(comm):
    x = np.arange(30.0)
    request = comm.iall_reduce(x)  # posted
    if comm.rank == 0:
        x *= 2
    request.wait()


def writes_where_it_receives(comm):
    x = np.zeros(5)
    if comm.rank == 0:
        request = comm.irecv(x, 1)  # posted
        x[2] = 7.0
        comm.send(0.0, 1)
        request.wait()
    else:
        comm.recv(np.empty(()), 0)
        comm.isend(x, 0).wait()


def receives_twice_into_one_place(comm):
    x = np.zeros(5)
    if comm.rank == 0:
        first = comm.irecv(x[:3], 1, tag=1)  # posted
        second = comm.irecv(x[2:], 1, tag=2)
        first.wait(), second.wait()
    else:
        comm.isend(x[:3], 0, tag=1), comm.isend(x[2:], 0, tag=2)


def receives_where_it_sends(comm):
    x = np.zeros(5)
    request = comm.isend(x, 1 - comm.rank)  # posted
    comm.recv(x, 1 - comm.rank)
    request.wait()


def sends_on_too_early(comm):
    x = np.zeros(5)
    if comm.rank == 0:
        request = comm.irecv(x, 1)  # posted
        comm.isend(x, 1, tag=2).wait()
        request.wait()
    else:
        comm.isend(x, 0).wait()


def adds_too_early(comm):
    x = np.zeros(5, np.float32)
    if comm.rank == 0:
        request = comm.irecv(x, 1)  # posted
        total = x.sum() * 2.0
        request.wait()
        return total
    return comm.isend(x, 0).wait()


def sums_too_early(comm):
    x = np.zeros(5)
    if comm.rank == 0:
        request = comm.irecv(x, 1)  # posted
        parts = [x.mean(), 1.0]
        comm.isend(np.array(parts), 1).wait()
        request.wait()
    else:
        comm.isend(x, 0).wait()


def waits_twice(comm):
    if comm.rank == 0:
        request = comm.isend(1.0, 1)  # posted
        request.wait()
        request.wait()
    else:
        comm.recv(np.empty(()), 0)


def receives_into_a_copy(comm):
    x = np.zeros(5)
    if comm.rank == 0:
        comm.recv(x[[0, 2]], 1)  # posted
    else:
        comm.isend(x[[0, 2]], 0).wait()


def receives_into_nothing(comm):
    if comm.rank == 0:
        comm.irecv(np.empty(4)[1:], 1).wait()  # posted
    else:
        comm.isend(np.zeros(3), 0).wait()


def exchanges_into_a_copy(comm):
    x = np.zeros(5)
    if comm.rank == 0:
        comm.sendrecv(x[1:], 1, x.copy(), 1)  # posted
    else:
        comm.sendrecv(x, 0, x[1:], 0)


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("changed in flight", changes_what_it_sends),
        ("changed in flight", changes_what_it_sums),
        ("changed in flight", writes_where_it_receives),
        ("changed in flight", receives_twice_into_one_place),
        ("changed in flight", receives_where_it_sends),
        ("read before wait", sends_on_too_early),
        ("read before wait", adds_too_early),
        ("read before wait", sums_too_early),
        ("waited twice", waits_twice),
        ("temporary", receives_into_a_copy),
        ("temporary", receives_into_nothing),
        ("temporary", exchanges_into_a_copy),
    ],
)
def test_a_misused_request_is_named_with_the_line_that_posted_it(kind, program, monkeypatch, tmp_path):
    monkeypatch.setenv("MINIDIST_GUARD_REPORT", str(tmp_path / "report"))
    with pytest.raises(RequestFault) as caught:
        watched(program)
    (told,) = map(json.loads, (tmp_path / "report").read_text().splitlines())
    assert told["kind"] == kind  # once, though several ranks may have found it
    assert caught.value.kind == kind
    (rank,), posted = caught.value.ranks, line_of(program, "posted")
    assert caught.value.lines == {rank: posted}
    assert list(told["lines"].values()) == [posted]
    assert posted in str(caught.value)
    assert str(caught.value).startswith(f"minidist guard: rank {rank}: ")
    monkeypatch.setenv("MINIDIST_GUARD_WITHOUT", kind)
    found = ""
    try:
        watched(program)
    except RequestFault as other:
        found = other.kind
    assert found != kind  # the same mistake may be another one too


class Holder:
    def __init__(self):
        self.buffer = np.empty(3)


def test_what_is_right_is_left_alone():
    def program(comm):
        other, x, holder = 1 - comm.rank, np.arange(6.0), Holder()
        requests = [comm.isend(x, other, tag) for tag in (1, 2)]  # two may read the same
        requests.append(comm.isend(x[::2] * 2, other, 3))  # a temporary: the request holds it
        requests.append(comm.isend(x[[0, 2]], other, 4))
        y, buffers = np.empty((2, 6)), [np.empty(3), holder.buffer]
        requests.append(comm.irecv(y[0], other, 1))
        requests.append(comm.irecv(y[1], other, 2))
        comm.recv(buffers[0], other, 3)
        request = comm.irecv(holder.buffer[1:], other, 4)
        while not request.test():
            comm.progress.advance()
        assert holder.buffer[1:].tolist() == [0.0, 2.0]
        request.wait()  # who has polled may ask for the result
        for request in requests:
            request.wait()
        assert (y == x).all()
        assert buffers[0].tolist() == [0.0, 4.0, 8.0]
        x += 1  # all are over
        total = np.ones(3)
        request = comm.iall_reduce(total, out=total)  # changes its array itself
        assert request.wait() is total
        assert total.tolist() == [2.0] * 3
        transposed = np.ones((3, 2)).T
        request = comm.isend(transposed, other)
        transposed[...] = 5.0  # what is not in C order was copied
        into = np.empty((2, 3), order="F")
        comm.recv(into, other)
        request.wait()
        assert (into == 1.0).all()
        comm.isend(1.0, other).wait()
        comm.recv(np.empty(()), other)  # a token
        numbers = np.zeros(3, np.int32)
        request = comm.irecv(numbers, other)
        comm.send(np.arange(3, dtype=np.int32), other)
        assert numbers.tolist() == [np.iinfo(np.int32).min] * 3
        request.wait()
        return numbers.tolist()

    assert watched(program) == [[0, 1, 2]] * 2


def test_many_receives_that_are_open_at_once_are_told_apart():
    def program(comm):
        count = 2 * poison.MARKS
        if comm.rank == 1:
            for _ in range(count):
                comm.send(np.ones(2), 0)
            return 0.0
        pieces = []
        for _ in range(count):
            piece = np.empty(2)  # the last one stays here, and is open while the others are waited for
            pieces.append((comm.irecv(piece, 1), piece))
        for request, _ in pieces:
            request.wait()
        return sum(x[0] for _, x in pieces)

    assert len(set(itertools.islice(poison.marks(), poison.MARKS))) == poison.MARKS
    assert watched(program)[0] == 2 * poison.MARKS


def test_no_poison_is_in_new_arrays_of_the_program():
    number, rows, new = np.zeros(()), np.zeros((6, 2)), []
    for mark, buffer in zip(poison.marks(), (number, rows[:, 1]), strict=False):
        poison.fill(buffer, mark)
        digest(buffer)
        new += [np.empty(1) for _ in range(8)] + [np.empty(6) for _ in range(8)]
    assert [poison.found(array) for array in new] == [set()] * 32
    assert len(poison.found(number) | poison.found(rows)) == 2


def test_the_buffer_of_a_receive_that_fails_is_as_it_was():
    def program(comm):
        x = np.arange(4.0)
        if comm.rank == 0:
            request = comm.irecv(x, 1)
            with pytest.raises(MessageMismatch):
                request.wait()
            with pytest.raises(MessageMismatch):
                request.wait()
            assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
            request = comm.irecv(x, 1)
            with pytest.raises(DeadlockError):
                request.wait()
            assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
        else:
            comm.isend(np.arange(4), 0).wait()

    watched(program)


def test_a_message_is_the_programs_only_when_it_has_asked():
    def program(comm):
        x = np.zeros(3)
        if comm.rank == 0:
            comm.isend(x, 1)
            comm.barrier()
        else:
            comm.barrier()
            request = comm.irecv(x, 0)
            assert request.done  # the message was there
            assert np.isnan(x).all()
            assert request.test()
            assert x.tolist() == [0.0] * 3

    watched(program)


def test_a_rank_cannot_wait_for_the_request_of_another():
    requests, tried = [], threading.Event()

    def program(comm):
        if comm.rank == 0:
            requests.append(comm.irecv(np.zeros(3), 1, tag=9))
            comm.send(1.0, 1)
            assert tried.wait(10)
        else:
            comm.recv(np.empty(()), 0)
            with pytest.raises(CommError, match=r"rank 1 waits in recv.*, which rank 0 has started"):
                requests[0].wait()
            tried.set()

    run_ranks(program, 2)
