"""Ranks on several machines, which share no board: what they tell each other in letters, and what is found by it."""

import json
import sys
import time
from typing import Any

import cloudpickle
import numpy as np
import pytest

from minidist import launch
from minidist.comm import Communicator, DeadlockError
from minidist.comm.guard.counts import Counts, without_under_way
from minidist.comm.guard.graph import Message, Operation, Standing, stuck

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test

KEY, TAG = "()", 3


def receives(rank: int, peer: int | None) -> Standing:
    """Give a rank that waits for a message."""
    message = Message(sending=False, peer=peer, tag=TAG)
    source = -1 if peer is None else peer
    op = Operation("recv", "world", KEY, (0, 1, 2), "a.py:1", peer=source, tag=TAG, messages=(message,))
    return Standing(rank, "waits", (op,))


def calls(rank: int, sequence: int) -> Standing:
    """Give a rank that waits for the others in a collective."""
    messages = tuple(Message(sending=False, peer=peer, tag=99) for peer in {0, 1, 2} - {rank})
    op = Operation("barrier", "world", KEY, (0, 1, 2), "a.py:1", sequence=sequence, messages=messages)
    return Standing(rank, "waits", (op,))


def counted(begun: int = 0, sent: Any = (), taken: Any = ()) -> Counts:
    """Give counts of a rank; sent and taken: {other rank: messages}."""
    counts = Counts()
    counts.begun[KEY] = begun
    counts.sent.update({(KEY, other, TAG): number for other, number in dict(sent).items()})
    counts.taken.update({(KEY, other, TAG): number for other, number in dict(taken).items()})
    return counts


@pytest.mark.parametrize("source", [1, None])
@pytest.mark.parametrize(("sent", "found"), [(2, {0, 1}), (3, set())])
def test_a_message_under_way_is_waited_for(source, sent, found):
    standings = {0: receives(0, source), 1: receives(1, 0), 2: Standing(2, "left")}
    counts = {0: counted(taken={1: 2}), 1: counted(sent={0: sent}), 2: counted()}
    assert stuck(standings) == {0, 1}
    assert stuck(without_under_way(standings, counts)) == found


@pytest.mark.parametrize(("begun", "found"), [(5, {0, 1, 2}), (6, set())])
def test_a_collective_that_all_have_begun_goes_on(begun, found):
    standings = {0: calls(0, 5), 1: calls(1, 5), 2: calls(2, 5) if begun > 5 else receives(2, 0)}
    counts = {0: counted(6), 1: counted(6), 2: counted(begun)}
    assert stuck(without_under_way(standings, counts)) == found


def a_long_send(comm: Communicator) -> None:
    x = np.ones(100_000)
    if comm.rank == 0:
        comm.send(x, 3)
    elif comm.rank == 3:
        comm.recv(x, 0, tag=1)
    comm.barrier()


def each_receives_first(comm: Communicator) -> None:
    x, received = np.ones(4), np.empty(4)
    comm.recv(received, (comm.rank - 1) % comm.size)
    comm.send(x, (comm.rank + 1) % comm.size)


def one_calls_nothing(comm: Communicator) -> None:
    x = np.empty(2)
    comm.recv(x, 0) if comm.rank == 2 else comm.all_reduce(np.ones(3))


def one_is_late(comm: Communicator) -> None:
    """Be correct, with messages of all kinds in flight."""
    received = np.empty(3000, np.int64)
    for step in range(20):
        if step == 10 and comm.rank == 1:
            time.sleep(3.5)
        requests = [comm.isend(np.full(3000, step), (comm.rank + 1) % comm.size, tag=step % 3)]
        comm.recv(received, (comm.rank - 1) % comm.size, tag=step % 3)
        assert comm.all_reduce(np.array(step)) == comm.size * step
        comm.barrier()
        requests[0].wait()


def tried_one_after_another(comm: Communicator) -> list[Any]:
    if len(set(comm.nodes)) == 1:
        return []
    one_is_late(comm)
    told = []
    for program in (each_receives_first, one_calls_nothing, a_long_send):
        with pytest.raises(DeadlockError) as caught:
            program(comm.split(0))
        told.append((caught.value.kind, caught.value.ranks))
    if comm.rank < 2:  # else this rank's program ends here
        x = np.empty(1)
        with pytest.raises(DeadlockError) as caught:
            comm.recv(x, 3)
        told.append((caught.value.kind, caught.value.ranks))
    return told


def test_deadlocks_are_found_without_a_shared_board_and_a_late_rank_is_only_named(monkeypatch, tmp_path):
    monkeypatch.setenv(
        "MPIR_CVAR_NUM_CLIQUES", "2"
    )  # MPICH then takes one machine for two, here with two ranks each
    monkeypatch.setenv("MINIDIST_GUARD_TIMEOUT", "1.5")
    monkeypatch.setenv("MINIDIST_GUARD_REPORT", str(tmp_path / "report"))
    results = launch(tried_one_after_another, 4, guard=True, timeout=60)
    if results[0] == []:
        pytest.skip("this MPI cannot pretend to be on two machines")
    everyone = (0, 1, 2, 3)
    found = [("cycle", everyone), ("missing rank", everyone), ("unmatched receive", everyone)]
    assert results[2:] == [found, found]
    assert results[:2] == [[*found, ("left", (0, 1, 3))]] * 2
    told = [json.loads(line) for line in (tmp_path / "report").read_text().splitlines()]
    expected = ["straggler", "cycle", "missing rank", "unmatched receive", "left"]
    assert [fault["kind"] for fault in told] == [*expected, "never received"]  # the long send of the third
    assert told[0]["ranks"] == [1]
