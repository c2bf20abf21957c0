"""Deadlocks on threads: found exactly, at once, and told so that a student sees what to mend."""

import time

import numpy as np
import pytest

from minidist.comm import ANY_SOURCE, CommError, DeadlockError, world
from minidist.comm.hub import EAGER, Hub
from minidist.comm.threads import run_ranks

LARGE = EAGER // 8 + 1  # numbers: a send of so many waits for its receiver


def story(program, size):
    """The report of a program that stands still."""
    with pytest.raises(DeadlockError) as caught:
        run_ranks(program, size)
    return str(caught.value)


def test_results_come_in_rank_order():
    assert run_ranks(lambda comm, factor: comm.rank * factor, 4, 10) == [0, 10, 20, 30]
    with pytest.raises(ValueError, match="at least 1 rank"):
        run_ranks(lambda comm: None, 0)


def test_a_cycle_of_receives_is_told_with_peers_tags_and_lines():
    def everyone_receives_first(comm):
        comm.recv(np.empty(3), source=(comm.rank + 1) % 3, tag=7)

    text = story(everyone_receives_first, 3)
    line = everyone_receives_first.__code__.co_firstlineno + 1
    assert text.startswith("no rank can go on:\n")
    for rank in range(3):
        peer = (rank + 1) % 3
        assert (
            f"rank {rank} waits in recv(source={peer}, tag=7) on 'world', waiting for rank {peer}, at "
            in text
        )
    assert text.count(f"test_threads.py:{line}") == 3


def test_a_cycle_of_large_sends_is_found_and_of_small_ones_works_by_luck():
    def everyone_sends_first(comm, length):
        comm.send(np.ones(length), 1 - comm.rank)
        comm.recv(np.empty(length), 1 - comm.rank)

    run_ranks(everyone_sends_first, 2, 3)
    text = story(lambda comm: everyone_sends_first(comm, LARGE), 2)
    assert "rank 0 waits in send(dest=1, tag=0)" in text


def test_a_wrong_tag_is_seen_from_both_sides():
    def program(comm):
        if comm.rank == 0:
            comm.send(np.ones(LARGE), 1, tag=5)
        else:
            comm.recv(np.empty(LARGE), 0, tag=6)

    text = story(program, 2)
    assert "rank 0 waits in send(dest=1, tag=5)" in text
    assert "rank 1 waits in recv(source=0, tag=6)" in text


def test_ranks_in_different_collectives():
    def program(comm):
        comm.all_reduce(1.0) if comm.rank == 0 else comm.barrier()
        comm.all_reduce(np.ones(LARGE)) if comm.rank == 0 else comm.gather(1.0, root=1)

    with pytest.raises(CommError):
        run_ranks(program, 2)


def test_a_collective_that_one_rank_never_calls():
    def program(comm):
        if comm.rank == 0:
            time.sleep(0.05)  # the others have left when it comes
            comm.all_reduce(1.0)

    text = story(program, 4)
    assert text.startswith("no rank can go on:")
    assert "rank 0 waits in all_reduce #0(reduction=sum) on 'world', waiting for rank 1" in text
    assert "rank 3 has left: its function has returned" in text


def test_waiting_for_a_rank_that_has_left_is_told_while_others_still_work():
    stop = []

    def program(comm):
        if comm.rank == 0:
            try:
                comm.recv(np.empty(1), 1)
            finally:
                stop.append("waited in vain")
        elif comm.rank == 2:
            while not stop:
                time.sleep(1e-3)

    text = story(program, 3)
    assert "rank 0 waits for rank 1, which has left" in text
    assert "rank 2 is running, at " in text


def test_any_source_with_nobody_left_to_send():
    text = story(lambda comm: comm.rank or comm.recv(np.empty(1), ANY_SOURCE, tag=2), 3)
    assert "rank 0 waits in recv(source=-1, tag=2)" in text


def test_a_world_of_one_waiting_for_itself():
    assert "waits in recv(source=0, tag=0)" in story(lambda comm: comm.recv(np.empty(1), 0), 1)


def test_a_split_that_one_rank_never_calls():
    assert "waits in split" in story(lambda comm: comm.rank == 0 or comm.split(0), 3)


def test_in_a_group_ranks_are_told_as_the_worlds():
    def program(comm):
        half = comm.split(comm.rank // 2, name="half")
        if comm.rank >= 2:
            half.recv(np.empty(1), 1 - half.rank)

    text = story(program, 4)
    assert "rank 2 waits in recv(source=1, tag=0) on 'half', waiting for rank 3 of the world" in text


def test_after_a_deadlock_the_ranks_can_go_on_talking():
    def program(comm):
        out = np.zeros(1)
        with pytest.raises(DeadlockError):
            comm.recv(out, 1 - comm.rank)
        comm.barrier()
        received = np.zeros(1)
        comm.sendrecv(np.full(1, comm.rank + 1.0), 1 - comm.rank, received, 1 - comm.rank)
        assert received == 2 - comm.rank
        assert out == 0

    run_ranks(program, 2)


def test_slow_ranks_are_no_deadlock():
    def program(comm):
        for step in range(20):
            if comm.rank == step % 4:
                time.sleep(2e-3)
            assert comm.all_reduce(1) == 4

    run_ranks(program, 4)


def test_this_detector_is_what_finds_deadlocks(monkeypatch):
    monkeypatch.setattr(Hub, "_look_around", lambda self: None)
    heard = []

    def program(comm):
        comm.recv(np.empty(1), 0)
        heard.append(comm.rank)

    import threading

    threading.Thread(target=run_ranks, args=(program, 1), daemon=True).start()
    time.sleep(0.1)
    waiting = [thread for thread in threading.enumerate() if thread.name == "rank 0"]
    assert waiting
    assert not heard


def test_leaving_with_sys_exit_is_a_failure():
    with pytest.raises(CommError, match=r"rank 1 called sys.exit\(0\)"):
        run_ranks(lambda comm: exit_with(0) if comm.rank == 1 else comm.barrier(), 3)
    with pytest.raises(CommError, match=r"rank 0 called abort\(3\)"):
        run_ranks(lambda comm: comm.abort(3) if comm.rank == 0 else comm.barrier(), 3)


def exit_with(code):
    raise SystemExit(code)


def test_world_is_the_ranks_own_communicator_on_threads():
    def program(comm):
        assert world() is comm
        return world().all_gather(comm.rank).tolist()

    assert run_ranks(program, 3) == [[0, 1, 2]] * 3
