"""The simulator finds what closed formulas say, sends what algorithms send, and shares links among their users."""

import math

import pytest

from minidist.plan import cost, traffic
from minidist.plan.acts import Collect, Compute, Receive, Send, Wait
from minidist.plan.cluster import Cluster, Link
from minidist.plan.messages import sent_by
from minidist.plan.simulate import play

LINK = Link(1e-5, 1e9)
FREE = Link()  # messages take no time


def cluster(link=LINK, devices=100, **facts):
    facts = {"within": link, "between": link, **facts}
    return Cluster("test", devices, 1e9, 1e9, **facts)


def all_reduce(n, size, algorithm=None):
    act = Collect("all_reduce", tuple(range(size)), n, 8, "sum", algorithm)
    return {rank: [act, Wait("sum")] for rank in range(size)}


@pytest.mark.parametrize("algorithm", ["naive", "tree", "recursive_doubling", "ring", "shared"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 16])
def test_an_all_reduce_takes_as_long_as_its_formula_says(algorithm, size):
    n = 960  # every number of ranks divides it
    played = play(all_reduce(n, size, algorithm), cluster())
    formula = cost.all_reduce(n, 8, size, LINK, algorithm)
    if algorithm in ("naive", "ring", "shared") or size & (size - 1) == 0:
        assert played.stop == pytest.approx(formula, rel=1e-12)
    else:
        assert 0.5 * formula <= played.stop <= formula
    for rank in range(size):
        assert played.sent[rank].sum() == traffic.all_reduce(n, 8, rank, size, algorithm).bytes
    if size > 1:
        assert played.stop >= 2 * (size - 1) / size * n * 8 / LINK.bandwidth  # no way is faster


def test_a_long_ring_goes_round_in_blocks():
    n = 3 * (1 << 17)  # 3 MiB on 2 ranks: 3 blocks
    played = play(all_reduce(n, 2, "ring"), cluster())
    assert played.stop == pytest.approx(cost.all_reduce(n, 8, 2, LINK, "ring"), rel=1e-12)
    assert len(played.flows) == 2 * traffic.all_reduce(n, 8, 0, 2, "ring").messages


@pytest.mark.parametrize("operation", ["reduce_scatter", "all_gather", "broadcast", "barrier"])
def test_the_other_collectives_take_as_long_as_their_formulas_say(operation):
    act = Collect(operation, (0, 1, 2, 3), 40, 8, "all")
    played = play({rank: [act, Wait("all")] for rank in range(4)}, cluster())
    assert played.stop == pytest.approx(cost.other(operation, 320, 4, LINK), rel=1e-12)


def test_collectives_at_once_share_their_links_also_where_one_rank_stands_for_all():
    acts = [Collect("all_reduce", tuple(range(4)), 96_000, 8, tag, "ring") for tag in "abc"]
    acts += [Wait(tag) for tag in "abc"]
    everybody = play(dict.fromkeys(range(4), acts), cluster()).stop
    assert play({0: acts}, cluster(), ranks=4).stop == pytest.approx(everybody, rel=0.02)


def test_ranks_of_a_machine_share_its_card():
    def swap(cards):
        acts = [[Send(rank ^ 2, 1_000_000, "x"), Receive(rank ^ 2, "x")] for rank in range(4)]
        return play(dict(enumerate(acts)), cluster(devices=2, cards=cards)).stop

    assert swap(2) == pytest.approx(1e-5 + 1e-3)
    assert swap(1) == pytest.approx(1e-5 + 2e-3)  # two messages one after another


def test_where_messages_need_the_core_a_collective_moves_only_between_computations():
    def overlapped(background):
        act = Collect("all_reduce", (0, 1), 1000, 8, "sum", "ring")  # two messages, one after the other
        acts = [act, Compute("backward", "a", 1.0), Compute("backward", "b", 1.0), Wait("sum")]
        played = play({0: acts, 1: acts}, cluster(background=background))
        return [span.stop for span in played.spans if span.kind == "flight"]

    assert overlapped(True) == pytest.approx([2 * (1e-5 + 4e-6)] * 2)
    assert overlapped(False) == pytest.approx([2.0] * 2)  # a message at the end of each computation


def test_more_ranks_than_devices_compute_more_slowly():
    acts = [Compute("forward", "layer", 1.0)]
    assert play(dict.fromkeys(range(4), acts), cluster(devices=2, nodes=1)).stop == 2.0


def test_programs_that_wait_for_each_other_are_refused():
    with pytest.raises(ValueError, match="rank 0 waits for x from rank 1; rank 1 waits for y from rank 0"):
        play({0: [Receive(1, "x")], 1: [Receive(0, "y")]}, cluster())


@pytest.mark.parametrize(("n", "size"), [(1000, 3), (4, 8), (200_000, 4)])
def test_a_member_alone_knows_what_it_sends(n, size):
    act = Collect("all_reduce", tuple(range(size)), n, 8, "sum")
    played = play(all_reduce(n, size), cluster())
    for rank in range(size):
        row = [0] * size
        for dest, nbytes in sent_by(act, rank, [0] * size):
            row[dest] += nbytes
        assert row == played.sent[rank].tolist()


@pytest.mark.parametrize(("devices", "cards"), [(1, 1), (2, 1), (4, 4), (4, 1), (8, 1)])
@pytest.mark.parametrize("n", [1000, 1 << 17])
def test_where_only_one_replica_is_played_collectives_take_as_long_as_among_all(n, devices, cards):
    # data=4, pipe=2: each stage sums over the ranks two places apart, both at the same time
    facts = {"devices": devices, "cards": cards, "within": Link(1e-6, 1e10), "between": Link(2e-5, 1e8)}
    groups = {rank: Collect("all_reduce", tuple(range(rank % 2, 8, 2)), n, 8, rank % 2) for rank in range(8)}
    acts = {rank: [act, Wait(act.tag)] for rank, act in groups.items()}
    everyone = play(acts, cluster(**facts))
    one = play({0: acts[0], 1: acts[1]}, cluster(**facts), ranks=8)
    assert one.sent[:2].tolist() == everyone.sent[:2].tolist()
    assert one.stop == pytest.approx(everyone.stop, rel=0.25)
    if devices in (1, 8):
        assert one.stop == pytest.approx(everyone.stop, rel=1e-12)


def test_ten_thousand_ranks_of_data_parallel_are_played_as_one():
    act = Collect("all_reduce", tuple(range(10_000)), 1 << 18, 4, "sum")
    played = play({0: [Compute("backward", "all", 1.0), act, Wait("sum")]}, cluster(devices=1), ranks=10_000)
    assert played.stop == pytest.approx(1.0 + cost.all_reduce(1 << 18, 4, 10_000, LINK, "ring"))
    assert math.isclose(played.facts["sent"][0], 2 * 9_999 / 10_000 * (1 << 20), rel_tol=1e-2)
