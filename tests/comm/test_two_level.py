"""Sums over several machines: within each, then between them, the same bytes everywhere, and little over the cable."""

from typing import Any

import numpy as np
import pytest

from minidist import launch
from minidist.comm import ANY_SOURCE, Communicator, NotShared
from minidist.comm.threads import run_ranks
from minidist.plan import traffic

MACHINES = [
    [0, 0, 1, 1],
    [0, 1, 0, 1],  # dealt out in turn
    [5, 5, 5, 2],  # uneven; their numbers mean nothing
    [0, 0, 1, 1, 2, 2, 2],
    [0, 1, 1, 0, 2, 2],
    [3, 1, 2],  # one rank on each
]


def rough(rank: int, n: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(n) * 10.0 ** (rank * 3)


@pytest.mark.parametrize("nodes", MACHINES)
def test_every_rank_gets_the_sum_and_the_same_bytes(nodes: list[int]) -> None:
    for n in (0, 1, 7, 3000, 140_000):  # the last goes by the ring between the machines

        def on_rank(comm: Communicator, n: int = n) -> tuple[np.ndarray, np.ndarray]:
            x = rough(comm.rank, n)
            return comm.all_reduce(x), comm.all_reduce(x, op="max", algorithm="two_level")

        results = run_ranks(on_rank, len(nodes), nodes=nodes)
        parts = [rough(rank, n) for rank in range(len(nodes))]
        for total, largest in results:
            np.testing.assert_allclose(total, sum(parts), rtol=1e-9)
            assert total.tobytes() == results[0][0].tobytes()
            assert (largest == np.max(parts, axis=0)).all()


@pytest.mark.parametrize("nodes", MACHINES)
@pytest.mark.parametrize("n", [10, 10_000, 140_000])
def test_each_rank_sends_what_was_predicted(nodes: list[int], n: int) -> None:
    def on_rank(comm: Communicator) -> tuple[int, int]:
        before = comm.counters["gradient"]
        comm.all_reduce(np.ones(n), purpose="gradient")
        after = comm.counters["gradient"]
        return after[0] - before[0], after[1] - before[1]

    sent = run_ranks(on_rank, len(nodes), nodes=nodes)
    for rank, (messages, nbytes) in enumerate(sent):
        expected = traffic.all_reduce(n, 8, rank, len(nodes), nodes=nodes)
        assert traffic.Traffic(messages, nbytes) == expected


def test_two_levels_are_chosen_where_there_are_two() -> None:
    def messages(comm: Communicator) -> int:
        before = comm.counters["user"][0]
        comm.all_reduce(np.ones(5))
        return comm.counters["user"][0] - before

    assert run_ranks(messages, 4, nodes=[0, 0, 1, 1]) == [2, 1, 2, 1]  # by two levels
    assert run_ranks(messages, 4, nodes=[0, 1, 2, 3]) == [2, 2, 2, 2]  # one rank each: recursive doubling
    assert run_ranks(messages, 4) == [2, 2, 2, 2]


def test_parts_of_the_world_know_their_machines_and_memory_is_not_shared_across() -> None:
    def on_rank(comm: Communicator) -> tuple[Any, ...]:
        inside = comm.split(comm.nodes[comm.rank])
        across = comm.split(comm.rank % 2, key=-comm.rank)
        assert inside is not None
        assert across is not None
        assert inside.allocate_shared(3).shape == (3,)
        with pytest.raises(NotShared, match=r"rank 1 of 'world/.' is on another machine than rank 0"):
            across.allocate_shared(3)
        return inside.nodes, across.nodes, comm.alone("x").nodes

    assert run_ranks(on_rank, 4, nodes=[7, 7, 8, 8]) == [
        ((7, 7), (8, 7), (7,)),
        ((7, 7), (8, 7), (7,)),
        ((8, 8), (8, 7), (8,)),
        ((8, 8), (8, 7), (8,)),
    ]


def test_each_rank_needs_a_machine() -> None:
    with pytest.raises(ValueError, match=r"nodes are \[0, 1\], expected one number for each of 3 ranks"):
        run_ranks(lambda comm: None, 3, nodes=[0, 1])


@pytest.mark.ranks(1, 2, 3, 4)
def test_on_one_machine_there_is_one_level(comm: Communicator) -> None:
    assert len(set(comm.nodes)) == 1
    assert float(comm.all_reduce(np.array(1.0), algorithm="two_level")) == comm.size


def on_two_machines(comm: Communicator) -> tuple[Any, ...]:
    if len(set(comm.nodes)) == 1:
        return (comm.nodes,)
    before = comm.counters["user"][0]
    total = comm.all_reduce(rough(comm.rank, 3000))
    messages = comm.counters["user"][0] - before
    try:
        comm.allocate_shared(3)
    except NotShared as why:
        return comm.nodes, messages, total.tobytes(), str(why)
    raise AssertionError("two machines share memory")


def test_mpi_tells_which_ranks_are_on_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPIR_CVAR_NUM_CLIQUES", "2")  # MPICH then takes one machine for two
    results = launch(on_two_machines, 4)
    if results[0] == ((0, 0, 0, 0),):
        pytest.skip("this MPI cannot pretend to be on two machines")
    nodes = results[0][0]
    assert len(set(nodes)) == 2
    for rank, result in enumerate(results):
        expected = traffic.two_level(3000, 8, rank, nodes).messages
        other = next(r for r in range(4) if nodes[r] != nodes[0])
        why = f"rank {other} of 'world' is on another machine than rank 0"
        assert result == (nodes, expected, results[0][2], why)


def receive_from_anyone(comm: Communicator) -> list[int]:
    """Let rank 0 receive five messages from each other rank, in the order in which they come."""
    if comm.rank:
        for number in range(5):
            comm.send(np.array(number), 0)
        return []
    received = np.empty((), np.int64)
    return [comm.recv(received, ANY_SOURCE) for _ in range(5 * (comm.size - 1))]


def test_messages_from_anyone_arrive_from_other_machines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPIR_CVAR_NUM_CLIQUES", "4")  # MPICH's own receive from any source loses some here
    assert sorted(launch(receive_from_anyone, 4, timeout=20)[0]) == [1] * 5 + [2] * 5 + [3] * 5
