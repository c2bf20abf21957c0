"""The loader: whoever reads, each row is read exactly once an epoch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.data import loader
from minidist.errors import UserError

ns = st.integers(0, 120)
sizes = st.integers(1, 5)
batch_sizes = st.integers(1, 50)
seeds = st.integers(0, 2**31)


@given(ns, batch_sizes, seeds, sizes)
def test_each_row_is_read_exactly_once_an_epoch_by_one_rank(n, batch, seed, size):
    read = [rows for rank in range(size) for rows, _ in loader.read(n, batch, seed, 3, rank, size)]
    assert sorted(np.concatenate([np.empty(0, np.int64), *read])) == list(range(n))


@given(ns, batch_sizes, seeds, sizes)
def test_the_global_batches_do_not_depend_on_the_number_of_ranks(n, batch, seed, size):
    alone = [rows for rows, _ in loader.read(n, batch, seed, 0, 0, 1)]
    ranks = [loader.read(n, batch, seed, 0, rank, size) for rank in range(size)]
    for whole, parts in zip(alone, zip(*ranks, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate([rows for rows, _ in parts]), whole)
        assert {count for _, count in parts} == {len(whole)}


@given(ns, batch_sizes, sizes)
def test_all_ranks_see_the_same_number_of_batches(n, batch, size):
    counts = {sum(1 for _ in loader.read(n, batch, 0, 0, rank, size)) for rank in range(size)}
    assert counts == {-(-n // batch)}


@given(ns, sizes, sizes)
def test_microbatches_of_all_ranks_make_up_the_batch(n, size, pieces):
    rows = np.arange(n)
    cut = [
        piece for rank in range(size) for piece in loader.microbatches(loader.share(rows, rank, size), pieces)
    ]
    assert len(cut) == size * pieces
    np.testing.assert_array_equal(np.concatenate(cut), rows)


def test_the_last_batch_is_shorter_and_kept():
    assert [len(rows) for rows in loader.batches(10, 4, seed=0, epoch=0)] == [4, 4, 2]


def test_a_batch_larger_than_the_data_set_is_all_of_it():
    (rows,) = loader.batches(5, 100, seed=0, epoch=0)
    assert sorted(rows) == [0, 1, 2, 3, 4]


def test_five_rows_on_eight_ranks_leave_three_ranks_without():
    assert [len(loader.share(np.arange(5), rank, 8)) for rank in range(8)] == [1, 1, 1, 1, 1, 0, 0, 0]


def test_the_first_batches_of_epochs_0_and_1_differ():
    first = [next(loader.batches(1000, 32, seed=0, epoch=epoch)) for epoch in (0, 1)]
    assert not np.array_equal(*first)


def test_another_seed_is_another_order_and_the_same_seed_the_same():
    orders = [np.concatenate([*loader.batches(1000, 32, seed=seed, epoch=0)]) for seed in (0, 1, 0)]
    assert not np.array_equal(orders[0], orders[1])
    np.testing.assert_array_equal(orders[0], orders[2])


def test_another_cut_can_be_given():
    def deal(rows, rank, size):  # like cards: one to each rank in turn
        return rows[rank::size]

    whole = next(loader.batches(10, 5, seed=0, epoch=0))
    rows, count = next(loader.read(10, 5, seed=0, epoch=0, rank=1, size=2, cut=deal))
    np.testing.assert_array_equal(rows, whole[1::2])
    assert count == 5


@pytest.mark.parametrize("batch", [0, -3])
def test_a_batch_without_examples_is_refused(batch):
    with pytest.raises(UserError, match=f"the batch size is {batch}, but .* at least 1"):
        next(loader.batches(10, batch, seed=0, epoch=0))
