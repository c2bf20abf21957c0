"""Stages are cut so that the most expensive one is as cheap as it can be, by counted or measured costs."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from minidist.comm import Communicator, Mesh, world
from minidist.models import CNN, GPT, MLP
from minidist.random import uniform
from minidist.split.stages import counted_costs, cut, measured_costs, partition
from minidist.split.tensor_parallel import parallelize


def largest(costs, runs):
    return max(sum(costs[run]) for run in runs)


@pytest.mark.parametrize("n", range(1, 9))
def test_the_largest_run_is_as_small_as_any_cut_makes_it(n):
    for seed in range(3):
        costs = (uniform(seed, "costs", 0, 0, n) * 9 // 1).tolist()  # with ties and zeros
        for stages in range(1, n + 1):
            runs = partition(costs, stages)
            assert [i for run in runs for i in range(n)[run]] == list(range(n))
            assert len(runs) == stages
            assert all(run.stop > run.start for run in runs)
            cuts = ([0, *inner, n] for inner in combinations(range(1, n), stages - 1))
            best = min(largest(costs, [slice(a, b) for a, b in pairwise(cut)]) for cut in cuts)
            assert largest(costs, runs) == best


def test_of_equally_good_cuts_the_more_even_one_is_taken():
    assert partition([1, 1, 1, 1, 10], 3) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert partition([1] * 6, 4) == [slice(0, 1), slice(1, 2), slice(2, 4), slice(4, 6)]


@pytest.mark.parametrize("stages", [0, 4])
def test_no_run_is_empty(stages):
    with pytest.raises(ValueError, match=r"3 costs cannot be cut into \d runs: expected 1 to 3"):
        partition([1, 2, 3], stages)


def test_parameters_are_counted_for_each_piece_that_uses_them():
    assert counted_costs(MLP([4, 3, 2], None)) == [4 * 3 + 3, 3 * 2 + 2]
    costs = counted_costs(GPT(7, 3, 1, 4, 2, seed=None))
    assert (costs[0], costs[2]) == (7 * 4 + 3 * 4, 7 * 4 + 2 * 4)  # the tied matrix in both


@pytest.mark.ranks(1, 3, transports=("threads",))
def test_costs_decide_where_to_cut(comm: Communicator) -> None:
    model = MLP([4] * 7, None)
    stage = cut(model, Mesh(comm, pipe=comm.size), costs=[9, 1, 1, 1, 1, 8])
    expected = [range(6)] if comm.size == 1 else [range(1), range(1, 5), range(5, 6)]
    here = [name for name, _ in stage.named_parameters()]
    assert here == [f"layers.{i}.{what}" for i in expected[comm.rank] for what in ("weight", "bias")]


@pytest.mark.ranks(1, 3, transports=("threads",))
def test_measured_costs_are_the_same_on_every_rank_and_leave_the_model_declared(comm: Communicator) -> None:
    mesh = Mesh(comm, pipe=comm.size)
    tokens = np.zeros((2, 3), np.int64)
    for model, inputs in (
        (GPT(7, 3, 2, 4, 2, seed=None), tokens),
        (CNN((1, 4, 4), 5, (2, 3), seed=None), np.ones((2, 1, 4, 4), np.float32)),
    ):
        costs = measured_costs(model, mesh, inputs)
        assert len(costs) == len(model.pieces())
        assert min(costs) > 0
        assert (comm.all_gather(np.array([costs])) == costs).all()
        assert all(set(p.array.strides) == {0} and p.grad is None for p in model.parameters())
        cut(model, mesh, costs=costs).initialize(0)


def test_measuring_does_not_touch_a_model_that_has_weights():
    model = MLP([4, 3, 2], seed=3)
    before = [p.data.copy() for p in model.parameters()]
    measured_costs(model, Mesh(world(), pipe=1), np.ones((2, 4), np.float32))
    for p, array in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.data, array)


@pytest.mark.ranks(4, transports=("threads",))
def test_pieces_that_are_shared_out_by_tensors_can_be_measured(comm: Communicator) -> None:
    mesh = Mesh(comm, pipe=2, tensor=2)
    model = GPT(7, 3, 2, 4, 2, seed=None)
    parallelize(model, mesh)
    costs = measured_costs(model, mesh, np.zeros((2, 3), np.int64))
    assert (comm.all_gather(np.array([costs])) == costs).all()
    with pytest.raises(
        ValueError, match="costs has 3 numbers, expected one for each of the model's 4 pieces"
    ):
        cut(model, mesh, costs=costs[1:])
    cut(model, mesh, costs=costs).initialize(0)
