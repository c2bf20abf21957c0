"""Messages between two ranks: values, refusals, and what is said about them."""

import numpy as np
import pytest

from minidist.comm import ANY_SOURCE, DeadlockError, MessageMismatch
from minidist.comm.message import INLINE
from minidist.comm.threads import run_ranks

LENGTHS = (0, 1, 7, INLINE // 8, INLINE // 8 + 1, 100_000)  # in the envelope, and on their own


@pytest.mark.ranks(2, 3, 4)
def test_a_message_of_any_length_arrives(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for length in LENGTHS:
        out = np.zeros(length)
        if comm.rank == 0:
            comm.send(np.arange(length) + 0.5, right, tag=5)
            assert comm.recv(out, left, tag=5) == left
        else:
            assert comm.recv(out, left, tag=5) == left
            comm.send(out, right, tag=5)
        np.testing.assert_array_equal(out, np.arange(length) + 0.5)


@pytest.mark.ranks(1, 2, 3, 4)
def test_sendrecv_goes_round_the_ring_also_in_place(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for length in LENGTHS:
        x, out = np.full(length, comm.rank, np.float32), np.empty(length, np.float32)
        assert comm.sendrecv(x, right, out, left) == left
        assert np.all(out == left)
        comm.sendrecv(x, right, x, left)
        assert np.all(x == left)


@pytest.mark.ranks(2)
def test_values_arrive_whatever_the_memory_is_like(comm):
    x = np.arange(1200.0).reshape(30, 40)
    sent = [x, np.asfortranarray(x), x.astype(">f8"), np.broadcast_to(x, x.shape), x[::-1][::-1]]
    outs = [
        np.zeros((30, 40)),
        np.zeros((30, 40), order="F"),
        np.zeros((30, 40), ">f8"),
        np.zeros((30, 80))[:, ::2],
    ]
    for array in sent:
        for out in outs:
            if comm.rank == 0:
                comm.send(array, 1)
            else:
                out[...] = 0
                comm.recv(out, 0)
                np.testing.assert_array_equal(out, x)


@pytest.mark.ranks(2)
def test_each_dtype_and_scalars_arrive(comm):
    for dtype in ("?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"):
        for shape in ((), (3,), (0, 2)):
            x, out = np.ones(shape, dtype), np.zeros(shape, dtype)
            comm.send(x, 1) if comm.rank == 0 else comm.recv(out, 0)
            if comm.rank == 1:
                np.testing.assert_array_equal(out, x)
    if comm.rank == 0:
        comm.send(2.5, 1)
        comm.send([1, 2, 3], 1)
    else:
        number, three = np.zeros(()), np.zeros(3, np.int64)
        comm.recv(number, 0)
        comm.recv(three, 0)
        assert (float(number), three.tolist()) == (2.5, [1, 2, 3])


@pytest.mark.ranks(2)
@pytest.mark.parametrize("length", [6, 6000])
def test_a_message_of_another_shape_or_dtype_is_refused_with_the_buffer_untouched(comm, length):
    wrong = [
        (np.full(length + 1, 7.0), rf"float64 \({length + 1},\) with tag 9.*float64 \({length},\)"),
        (np.full(length - 1, 7.0), rf"float64 \({length - 1},\)"),
        (np.full(length, 7.0, np.float32), "float32.*float64"),
        (np.full((2, length // 2), 7.0), rf"\(2, {length // 2}\)"),
    ]
    for x, words in wrong:
        if comm.rank == 0:
            comm.send(x, 1, tag=9)
        else:
            memory = np.arange(length + 10.0)
            with pytest.raises(
                MessageMismatch, match=f"rank 0 sent {words if words[0] == 'f' else '.*' + words}"
            ):
                comm.recv(memory[5 : length + 5], 0, tag=9)
            assert memory.tolist() == list(range(length + 10))
    comm.barrier()  # nobody waits for a message that was refused


@pytest.mark.ranks(2, 3, 4)
def test_messages_of_one_tag_keep_their_order_and_tags_are_apart(comm):
    if comm.rank == 0:
        requests = [comm.isend(np.full(n, tag + n / 10), 1, tag) for n in (3, 3, 2000, 3) for tag in (1, 2)]
        for request in requests:
            request.wait()
    elif comm.rank == 1:
        for tag in (2, 1):
            for n in (3, 3, 2000, 3):
                out = np.empty(n)
                comm.recv(out, 0, tag)
                assert np.all(out == tag + n / 10)


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("length", [3, 3000])
def test_any_source_says_who_it_was(comm, length):
    if comm.rank == 0:
        heard = set()
        for _ in range(comm.size - 1):
            out = np.empty(length)
            source = comm.recv(out, ANY_SOURCE, tag=4)
            assert np.all(out == source)
            heard.add(source)
        assert heard == set(range(1, comm.size))
    else:
        comm.send(np.full(length, float(comm.rank)), 0, tag=4)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("length", [3, 100_000])
def test_requests_can_be_waited_for_twice_and_in_any_order(comm, length):
    if comm.rank == 0:
        for number in range(4):  # temporaries, whose requests are thrown away
            comm.isend(np.full(length, float(number)), 1, tag=number)
        comm.recv(np.empty(()), 1)
    else:
        outs = [np.empty(length) for _ in range(4)]
        requests = [comm.irecv(out, 0, tag=number) for number, out in enumerate(outs)]
        for number in (2, 0, 3, 1):
            assert requests[number].wait() == requests[number].wait() == 0
            assert requests[number].test()
            assert np.all(outs[number] == number)
        comm.send(1.0, 0)


@pytest.mark.ranks(2)
def test_what_was_sent_may_be_changed_afterwards(comm):
    x = np.zeros(1000)
    for number in range(20):
        if comm.rank == 0:
            x[:] = number
            comm.send(x, 1)
            x[:] = -1
        else:
            comm.recv(x, 0)
            assert np.all(x == number)


@pytest.mark.ranks(1, 2)
def test_a_rank_may_send_to_itself_without_blocking(comm):
    for length in (3, 100_000):
        out = np.zeros(length)
        request = comm.isend(np.ones(length), comm.rank)
        comm.recv(out, comm.rank)
        request.wait()
        assert np.all(out == 1)


@pytest.mark.ranks(1, 3)
def test_wrong_arguments_are_refused_before_anything_is_sent(comm):
    before, out = comm.counters, np.zeros(3)
    largest = comm.endpoint.largest_tag
    read_only = np.broadcast_to(0.0, 3)
    refusals = [
        (ValueError, "sends to itself", lambda: comm.send(out, comm.rank)),
        (
            ValueError,
            f"dest is {comm.size}, expected 0 to {comm.size - 1}",
            lambda: comm.isend(out, comm.size),
        ),
        (ValueError, "dest is -1", lambda: comm.isend(out, ANY_SOURCE)),
        (ValueError, "or ANY_SOURCE", lambda: comm.recv(out, -2)),
        (ValueError, f"tag is -1, expected 0 to {largest}", lambda: comm.isend(out, 0, tag=-1)),
        (ValueError, f"tag is {largest + 1}", lambda: comm.recv(out, 0, tag=largest + 1)),
        (ValueError, "out is read-only", lambda: comm.recv(read_only, 0)),
        (ValueError, "out is read-only", lambda: comm.sendrecv(out, 0, read_only, 0)),
        (TypeError, "out is a list", lambda: comm.recv([0.0], 0)),
        (TypeError, "out has dtype object", lambda: comm.recv(np.empty(3, object), 0)),
        (TypeError, "masked", lambda: comm.recv(np.ma.zeros(3), 0)),
        (TypeError, "dtype <U3", lambda: comm.isend("abc", 0)),
        (TypeError, "dtype object", lambda: comm.isend({"a": 1}, 0)),
        (TypeError, "not an array of numbers", lambda: comm.isend([[1], [2, 3]], 0)),
        (ValueError, "purpose is 'fun'", lambda: comm.isend(out, 0, purpose="fun")),
    ]
    for kind, words, call in refusals:
        with pytest.raises(kind, match=words):
            call()
    assert comm.counters == before


@pytest.mark.ranks(2)
def test_the_largest_tag_works(comm):
    largest = comm.endpoint.largest_tag
    assert largest == 2**26 - 1 or comm.transport == "mpi"
    out = np.zeros(3000)
    comm.send(np.ones(3000), 1, tag=largest) if comm.rank == 0 else comm.recv(out, 0, tag=largest)
    assert out[0] == comm.rank


@pytest.mark.ranks(2)
def test_a_message_counts_once_with_the_bytes_of_its_payload(comm):
    for length in LENGTHS:
        before = comm.counters["activation"]
        if comm.rank == 0:
            comm.send(np.ones(length), 1, purpose="activation")
            assert comm.counters["activation"] == (before[0] + 1, before[1] + 8 * length)
        else:
            comm.recv(np.ones(length), 0, purpose="activation")
            assert comm.counters["activation"] == before


@pytest.mark.ranks(2, transports=("mpi",))
def test_a_program_that_uses_mpi_itself_hears_only_its_own_messages(comm):
    from mpi4py import MPI

    everyone, theirs, ours = MPI.COMM_WORLD, np.zeros(3), np.zeros(3)
    if everyone.Get_rank() > 1:
        return
    other = 1 - comm.rank
    pending = everyone.Irecv(theirs, MPI.ANY_SOURCE, MPI.ANY_TAG)
    comm.sendrecv(np.full(3, 1.0), other, ours, ANY_SOURCE, tag=0)
    assert not pending.Test()
    comm.barrier()  # both have looked
    everyone.Send(np.full(3, 2.0), other, tag=0)
    pending.Wait()
    assert (theirs.tolist(), ours.tolist()) == ([2.0] * 3, [1.0] * 3)


@pytest.mark.ranks(1, 2)
def test_a_new_array_is_received_as_it_was_sent(comm):
    for length in LENGTHS:
        for x in (np.arange(length, dtype=np.float32), np.arange(length * 2).reshape(2, length)):
            send = comm.isend(x, comm.size - 1, tag=3) if comm.rank == 0 else None
            if comm.rank == comm.size - 1:
                got = comm.irecv_new(0, tag=3).wait()
                assert (got.dtype, got.shape) == (x.dtype, x.shape)
                np.testing.assert_array_equal(got, x)
                assert got.flags.writeable
            if send is not None:
                send.wait()
    with pytest.raises(ValueError, match=f"source is {comm.size}, expected 0 to"):
        comm.irecv_new(comm.size)


@pytest.mark.ranks(2)
def test_a_synchronous_send_waits_for_its_receive_even_if_it_is_small(comm):
    comm.synchronous = True
    if comm.rank == 0:
        order = []
        answer = comm.irecv(np.empty(()), 1, tag=2)
        comm.send(1.0, 1)
        order.append("sent")
        assert answer.test()  # rank 1 answered before it received
    else:
        comm.isend(2.0, 0, tag=2).wait()  # an isend is not concerned
        assert comm.rank == 1
        comm.recv(np.empty(()), 0)


def test_two_ranks_that_send_first_stand_still_where_sends_are_synchronous():
    def both_send(comm):
        comm.synchronous = True
        comm.send(1.0, 1 - comm.rank)
        comm.recv(np.empty(()), 1 - comm.rank)

    with pytest.raises(DeadlockError, match="send"):
        run_ranks(both_send, 2)
