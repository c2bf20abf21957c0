"""A step on several ranks must be the step of one process with all rows, however they were shared."""

import itertools

import numpy as np
import pytest

pytestmark = pytest.mark.exercise(
    timeout=8, ranks=[1, 2, 3, 4], offers=["all_reduce", "broadcast"], forbids=["minidist"]
)
SEED = 5
WIDTH = 3
BATCH, STEPS, RATE = 7, 4, 0.1  # of a training


def rows(n, seed=SEED):
    """Give n rows: inputs (n, WIDTH) and targets (n,)."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, WIDTH)), random.normal(size=n)


def weights(seed):
    """Give a vector of weights."""
    return np.random.default_rng(seed).normal(size=WIDTH)


def mean_gradient(w, x, y):
    """Give the gradient of the mean loss over these rows; zeros for none."""
    return x.T @ (x @ w - y) / max(1, len(y))


def join(parts):
    """Give the rows of all parts as one."""
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


@pytest.mark.exercise(points=1, group="shares", hint="10 rows on 4 ranks are 3, 3, 2 and 2")
def test_every_row_belongs_to_one_rank(student):
    size, n = student.size, 11
    got = student.call("my_rows", [(n,)] * size)
    pieces = np.array_split(np.arange(n), size)
    lost = [(rank * (n // size), (rank + 1) * (n // size)) for rank in range(size)]
    last = [*lost[:-1], (lost[-1][0], n)]
    wrong = {"rows lost": lost, "last takes the rest": last, "all rows": [(0, n)] * size}
    student.compare(got, [(int(piece[0]), int(piece[-1]) + 1) for piece in pieces], wrong)


def check_gradient(student, counts):
    """Let rank r have counts[r] rows, and compare what every rank got."""
    size, w = student.size, weights(1)
    x, y = rows(sum(counts))
    ends = np.cumsum([0, *counts])
    mine = [(x[a:b], y[a:b]) for a, b in itertools.pairwise(ends)]
    got = student.call("gradient", [(w, *part) for part in mine])
    right = mean_gradient(w, x, y)
    own = [mean_gradient(w, *part) for part in mine]
    wrong = {
        "sum, not mean": [sum(own)] * size,
        "no division": [sum(n * g for n, g in zip(counts, own, strict=True))] * size,
        "averaged twice": [right / size] * size,
        "mean of means": [sum(own) / size] * size,
        "own part only": own,
    }
    student.compare(got, [right] * size, wrong)


@pytest.mark.exercise(points=2, group="gradient", hint="which number does the mean over all rows divide by?")
def test_the_gradient_is_that_of_all_rows(student):
    check_gradient(student, [4] * student.size)


@pytest.mark.exercise(points=2, group="gradient", hint="a rank with 1 row must not weigh like one with 5")
def test_each_row_weighs_the_same_however_rows_are_shared(student):
    check_gradient(student, [5, 1, 3, 2][: student.size])


@pytest.mark.exercise(
    points=1, group="gradient", hint="what has a rank without rows to add to the sum? And 0 / 0?"
)
def test_a_rank_without_rows_takes_part(student):
    check_gradient(student, [3, 0, 2, 0][: student.size])


def check_accumulation(student):
    """Give ranks different micro-batches, compare, and return how often each called all_reduce."""
    size, w = student.size, weights(2)
    sizes = [[2, 5, 1], [4, 3], [1, 1, 6], [3]][:size]
    parts = [[rows(n, 100 * rank + i) for i, n in enumerate(of_rank)] for rank, of_rank in enumerate(sizes)]
    got = student.call("accumulate", [(w, of_rank) for of_rank in parts])
    count = sum(sum(of_rank) for of_rank in sizes)
    right = mean_gradient(w, *join([part for of_rank in parts for part in of_rank]))
    means = [[mean_gradient(w, *part) for part in of_rank] for of_rank in parts]
    number = sum(len(of_rank) for of_rank in parts)
    last = [len(of_rank[-1][1]) * mean_gradient(w, *of_rank[-1]) for of_rank in parts]
    wrong = {
        "mean of parts": [sum(sum(of_rank) for of_rank in means) / number] * size,
        "mean of parts and ranks": [sum(sum(m) / len(m) for m in means) / size] * size,
        "last part only": [sum(last) / count] * size,
        "averaged twice": [right / size] * size,
        "mean of means": [sum(mean_gradient(w, *join(of_rank)) for of_rank in parts) / size] * size,
    }
    student.compare(got, [right] * size, wrong)
    return [counted.calls.get("all_reduce", 0) for counted in student.counted]


@pytest.mark.exercise(
    points=2, group="accumulation", hint="add up over rows, and divide once, by the number of all"
)
def test_micro_batches_add_up_to_the_whole_batch(student):
    check_accumulation(student)


@pytest.mark.exercise(
    points=1, group="accumulation", hint="a rank can add up its own parts without telling anybody"
)
def test_only_the_sum_of_all_parts_is_sent(student):
    calls = check_accumulation(student)
    parts = [3, 2, 3, 1][: student.size]
    student.limit(
        calls, [2] * student.size, "all-reduces", {"every message": [2 * max(parts)] * student.size}
    )


def descend(starts, x, y, alone=False, divide=1.0, own_loss=False):
    """Train by hand: replicas begin at `starts`, and each computes with its share. Give (weights, losses) by rank."""
    held, losses = [start.copy() for start in starts], [[] for _ in starts]
    for step in range(STEPS):
        shares = np.array_split(np.arange(step * BATCH, (step + 1) * BATCH), len(starts))
        counts = [len(mine) for mine in shares]
        own = [mean_gradient(w, x[mine], y[mine]) for w, mine in zip(held, shares, strict=True)]
        loss = [((x[mine] @ w - y[mine]) ** 2).mean() / 2 for w, mine in zip(held, shares, strict=True)]
        whole = float(np.average(loss, weights=counts))
        for rank, told in enumerate(losses):
            told.append(float(loss[rank]) if own_loss else whole)
        applied = own if alone else [np.average(own, axis=0, weights=counts) / divide] * len(starts)
        held = [w - RATE * gradient for w, gradient in zip(held, applied, strict=True)]
    return list(zip(held, losses, strict=True))


@pytest.mark.exercise(
    points=4, group="training", hint="compare the weights of two ranks after the first step"
)
def test_training_is_that_of_one_process(student):
    size = student.size
    x, y = rows(BATCH * STEPS)
    starts = [weights(10 + rank) for rank in range(size)]
    got = student.call("train", [(start, x, y, BATCH, STEPS, RATE) for start in starts])
    same = [starts[0]] * size
    wrong = {
        "starts drift": descend(starts, x, y),
        "replicas drift": descend(same, x, y, alone=True),
        "replicas drift, own losses": descend(same, x, y, alone=True, own_loss=True),
        "wrong root": descend([starts[-1]] * size, x, y),
        "averaged twice": descend(same, x, y, divide=size),
        "sum, not mean": descend(same, x, y, divide=1 / size),
        "local loss": descend(same, x, y, own_loss=True),
    }
    student.compare(got, descend(same, x, y), wrong)
