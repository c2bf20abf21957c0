"""Operations in the background, and what listeners are told."""

import threading

import numpy as np
import pytest

from minidist.comm import ANY_SOURCE, CommError, Communicator
from minidist.comm.events import Listener
from minidist.comm.threads import run_ranks


@pytest.mark.ranks(1, 2, 3, 4)
def test_several_collectives_are_in_flight_at_once_and_may_be_waited_for_in_any_order(comm):
    x = np.arange(1000.0)
    for length in (10, 300_000):
        values = np.full(length, comm.rank + 1.0)
        total = comm.size * (comm.size + 1) / 2
        requests = [
            comm.iall_reduce(values),
            comm.iall_gather(x[: comm.rank + 1]),
            comm.ireduce_scatter(values),
            comm.ibroadcast(values.copy(), root=comm.size - 1),
            comm.iall_reduce(values, "max"),
        ]
        order = np.random.default_rng(comm.rank).permutation(5)  # another one on each rank
        results = {number: requests[number].wait() for number in order}
        assert np.all(results[0] == total)
        assert len(results[1]) == total
        assert np.all(results[2] == total)
        assert np.all(results[3] == comm.size)
        assert np.all(results[4] == comm.size)


@pytest.mark.ranks(2, 3, 4)
def test_every_wait_moves_everything(comm):
    x = np.ones(300_000)
    background = comm.iall_reduce(x, out=x)
    comm.barrier()
    for _ in range(100):  # not one of these is a wait for `background`
        comm.all_reduce(1.0)
    while not background.test():
        comm.all_reduce(1.0)
        if all(comm.all_gather(background.done)):
            break
    assert np.all(background.wait() == comm.size)


@pytest.mark.ranks(2, 3, 4)
def test_ticks_move_a_collective_to_its_end_without_any_wait(comm):
    x, last = np.full(300_000, comm.rank + 1.0), comm.size - 1
    if comm.rank == last:  # begins when it has heard that the others have begun
        for other in range(last):
            comm.recv(np.empty(()), other)
    request = comm.iall_reduce(x, out=x, algorithm="ring")
    if comm.rank != last:
        assert not request.done
        comm.send(1.0, last)
    while not request.done:
        comm.progress.advance()
    assert np.all(x == comm.size * (comm.size + 1) / 2)


@pytest.mark.ranks(2, 3)
def test_an_error_of_an_operation_is_raised_where_it_is_waited_for(comm):
    if comm.rank == 0:
        comm.send(np.ones(3), 1)
    elif comm.rank == 1:
        request = comm.irecv(np.ones(4), 0)
        while not request.done:
            comm.progress.advance()
    assert comm.all_reduce(1) == comm.size
    if comm.rank == 1:
        for _ in range(2):
            with pytest.raises(CommError, match=r"recv\(source=0, tag=0\).*float64 \(3,\)"):
                request.wait()


@pytest.mark.ranks(1, transports=("threads",))
def test_an_operation_that_was_interrupted_never_passes_for_complete(comm):
    def steps(channel):
        yield (channel.receive(np.empty(1), 0),)
        raise KeyboardInterrupt  # as if Ctrl-C were pressed while this operation moves

    request = comm._collective("interrupted", steps, "user")
    comm.endpoint.isend(np.ones(1), 0, comm.endpoint.collective_tags[0])
    for call in (comm.progress.advance, request.test, request.wait):
        with pytest.raises(KeyboardInterrupt):
            call()


# ---------------------------------------------------------------- listeners


class Recorder(Listener):
    """Write down everything."""

    def __init__(self):
        self.told = []

    def before(self, event):
        self.told.append(("before", event))

    def waiting(self, event):
        self.told.append(("waiting", event))

    def after(self, event):
        self.told.append(("after", event))


@pytest.mark.ranks(1, 2, 4)
def test_listeners_are_told_of_each_operation_before_and_after(comm):
    recorder = Recorder()
    comm.listeners.append(recorder)
    x = np.ones((2, 3), np.float32)
    comm.all_reduce(x, "max", purpose="control")
    comm.broadcast(x, root=comm.size - 1)
    told = [(when, event.operation) for when, event in recorder.told if when != "waiting"]
    assert told == [(when, name) for name in ("all_reduce", "broadcast") for when in ("before", "after")]
    first, second = recorder.told[0][1], recorder.told[-1][1]
    assert (first.sequence, first.dtype, first.shape, first.bytes) == (0, np.float32, (2, 3), 24)
    assert (first.reduction, first.root, first.peer, first.purpose) == ("max", None, None, "control")
    assert (second.sequence, second.root, second.reduction) == (1, comm.size - 1, None)
    assert first.communicator is comm
    assert "test_progress.py:" in first.line
    assert first.line != second.line
    assert first.time <= second.time
    with pytest.raises(AttributeError):
        first.root = 1


@pytest.mark.ranks(2)
def test_listeners_are_told_of_messages_and_of_waiting(comm):
    told = {}

    class AsksForTheMessageWhenWaiting(Recorder):
        def waiting(self, event):
            if "waiting" not in told:
                told["waiting"] = event
                comm.isend(1.0, 1, tag=8)

    if comm.rank == 0:
        comm.listeners.append(AsksForTheMessageWhenWaiting())
        comm.recv(np.zeros(3), ANY_SOURCE, tag=7)
        event = told["waiting"]
        assert (event.operation, event.peer, event.tag, event.bytes) == ("recv", ANY_SOURCE, 7, 24)
        assert event.sequence is None
    else:
        comm.recv(np.empty(()), 0, tag=8)
        comm.send(np.zeros(3), 0, tag=7)


@pytest.mark.ranks(2)
def test_a_second_thread_that_waits_is_refused(comm):
    told = []

    def wait_too():
        try:
            comm.barrier()
        except CommError as error:
            told.append(str(error))

    class WaitsInAnotherThread(Recorder):
        def waiting(self, event):
            if not told:
                second = threading.Thread(target=wait_too, name="second")
                second.start()
                second.join()
                comm.isend(1.0, 0, tag=8)

    if comm.rank == 0:
        comm.recv(np.empty(()), 1, tag=8)
        comm.send(1.0, 1)
    else:
        comm.listeners.append(WaitsInAnotherThread())
        comm.recv(np.zeros(()), 0)
        assert "thread 'second' waits in barrier #0" in told[0]
        assert "belong to one thread" in told[0]


@pytest.mark.ranks(1, 2, 3, 4)
def test_a_listener_may_talk_on_its_own_communicator_and_refuse_an_operation(comm):
    private = comm.split(0)
    private.listeners = []

    class AllMustAgree(Listener):
        def before(self, event):
            shapes = private.all_gather(np.array([event.shape]), purpose="guard")
            if not (shapes == shapes[0]).all():
                raise CommError(f"shapes differ: {shapes.tolist()}")

    comm.listeners.append(AllMustAgree())
    assert np.all(comm.all_reduce(np.ones(3)) == comm.size)
    before, x = comm.counters["user"], np.ones(3 + (comm.rank == 0))
    if comm.size > 1:
        with pytest.raises(CommError, match="shapes differ"):
            comm.all_reduce(x, out=x)
        assert np.all(x == 1)
        assert comm.counters["user"] == before


@pytest.mark.ranks(1, 2, 3)
def test_a_listener_may_talk_after_an_operation_too(comm):
    private = comm.split(0)

    class CountsRanks(Recorder):
        def after(self, event):
            self.told.append(int(private.all_reduce(1, purpose="guard")))

    recorder = CountsRanks()
    comm.listeners.append(recorder)
    requests = [comm.iall_reduce(np.ones(300_000)), comm.iall_reduce(np.ones(3))]
    for request in requests:
        assert np.all(request.wait() == comm.size)
    assert [told for told in recorder.told if isinstance(told, int)] == [comm.size] * 2


@pytest.mark.ranks(1, transports=("threads",))
def test_what_a_listener_raises_is_raised_as_it_is_and_takes_no_complete_operation_back(comm):
    class RefusesTag2(Recorder):
        def after(self, event):
            if event.operation == "recv" and event.tag == 2:
                raise CommError("not this one")

    comm.listeners.append(RefusesTag2())
    out = np.zeros(2)
    first, second = (comm.irecv(out[tag - 1 : tag], 0, tag) for tag in (1, 2))
    for tag in (1, 2):
        comm.isend([float(tag)], 0, tag)
    with pytest.raises(CommError, match="not this one"):
        first.wait()  # both are complete by now
    assert (first.wait(), second.wait(), out.tolist()) == (0, 0, [1.0, 2.0])


@pytest.mark.ranks(2, 3)
def test_nothing_is_sent_before_what_a_listener_has_asked_for_is_complete(comm):
    class OneByOne(Listener):
        def __init__(self):
            self.open, self.asked = False, 0

        def before(self, event):
            return [Gate(self)]

    class Gate:
        peer, source, count, done = None, -1, 0, False

        def __init__(self, listener):
            self.listener = listener

        def test(self):
            self.listener.asked += 1
            return self.listener.open

    listener = OneByOne()
    comm.listeners.append(listener)
    before = comm.counters["user"]
    request = comm.iall_reduce(np.ones(3))
    assert not request.test()
    assert comm.counters["user"] == before
    listener.open = True
    assert np.all(request.wait() == comm.size)
    assert listener.asked >= 2


@pytest.mark.ranks(2)
def test_listeners_are_told_which_call_was_made_and_when_its_result_is_asked_for(comm):
    told = []

    class Waits(Listener):
        def before(self, event):
            told.append(event.call)

        def waited(self, event):
            told.append(f"waited for {event.call}")

    comm.listeners.append(Waits())
    x = np.ones(2)
    if comm.rank == 0:
        comm.send(x, 1)
        request = comm.isend(x, 1)
        assert told == ["send", "waited for send", "isend"]
        request.wait()
        request.wait()
        assert told[3:] == ["waited for isend"] * 2
    else:
        comm.recv(x, 0)
        request = comm.irecv(x, 0)
        while not request.test():
            pass
        assert told == ["recv", "waited for recv", "irecv", "waited for irecv"]
    told.clear()
    comm.all_gather(x)
    comm.iall_gather(x).wait()
    assert told == ["all_gather", "waited for all_gather", "iall_gather", "waited for iall_gather"]


@pytest.mark.ranks(2)
def test_a_split_communicator_begins_with_the_listeners_it_was_split_under(comm):
    recorder = Recorder()
    comm.listeners.append(recorder)
    half = comm.split(0, name="half")
    half.barrier()
    assert recorder.told[-1][1].communicator.name == "half"
    half.listeners.clear()
    assert comm.listeners == [recorder]


def test_names_say_where_one_is():
    def on_rank(comm):
        assert isinstance(comm, Communicator)
        return repr(comm), repr(comm.split(comm.rank % 2)), repr(comm.split(0, name="all"))

    assert run_ranks(on_rank, 3)[1] == (
        "<Communicator 'world': rank 1 of 3, threads>",
        "<Communicator 'world/1': rank 0 of 1, threads>",
        "<Communicator 'all': rank 1 of 3, threads>",
    )
