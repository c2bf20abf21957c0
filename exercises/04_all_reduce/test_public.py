"""Every rank must end with the sum, by as few messages and bytes as the way allows."""

import math

import numpy as np
import pytest

pytestmark = pytest.mark.exercise(
    timeout=8, ranks=[1, 2, 3, 4], offers=["send", "recv", "sendrecv"], forbids=["minidist"]
)
SEED = 4
LENGTH = 11  # divisible by no number of ranks


def vectors(size, length=LENGTH):
    """Give each rank whole numbers, so that every order of adding has the same sum."""
    return list(np.random.default_rng(SEED + size).integers(1, 1000, (size, length)).astype(float))


def around(x, steps, shift=0, hand_out=True):
    """Give what a ring leaves on each rank: with `steps` in each round, and chunks `shift` too early in the second."""
    size = len(x)
    held = [[chunk.copy() for chunk in np.array_split(vector, size)] for vector in x]
    for step in range(steps):
        sent = [held[rank][(rank - step) % size].copy() for rank in range(size)]
        for rank in range(size):
            held[rank][(rank - step - 1) % size] += sent[rank - 1]
    for step in range(steps if hand_out else 0):
        sent = [held[rank][(rank + 1 - shift - step) % size].copy() for rank in range(size)]
        for rank in range(size):
            held[rank][(rank - shift - step) % size] = sent[rank - 1]
    return held


def typical(x):
    """Give what known mistakes leave on each rank, whatever the way."""
    total, size = sum(x), len(x)
    power = 1 << (size.bit_length() - 1)
    return {
        "mean, not sum": [total / size] * size,
        "own part only": x,
        "root only": [total, *x[1:]],
        "rank 0 twice": [total + x[0]] * size,
        "left over": [sum(x[:power])] * power + x[power:],
        "neighbour only": [x[rank] + x[rank - 1] for rank in range(size)],
    }


def check_sum(student, function, length=LENGTH, **more):
    """Run one way and compare what every rank got."""
    x = vectors(student.size, length)
    got = student.call(function, [(vector,) for vector in x])
    student.compare(got, [sum(x)] * student.size, wrong={**typical(x), **more})


def messages(student):
    """Give how many messages each rank sent."""
    return [counted.messages for counted in student.counted]


@pytest.mark.exercise(points=2, group="naive", hint="where does the sum begin, and who gets it in the end?")
def test_naive_gives_every_rank_the_sum(student):
    check_sum(student, "naive")


@pytest.mark.exercise(
    points=1, group="naive", hint="each vector travels to rank 0 once, and the sum back once"
)
def test_naive_sends_each_vector_once(student):
    check_sum(student, "naive")
    student.limit(messages(student), [max(1, student.size - 1)] + [1] * (student.size - 1), "messages")


@pytest.mark.exercise(
    points=2,
    ranks=[1, 2, 3, 4, 5],
    group="tree",
    hint="draw 5 ranks: whom does rank 4 meet, and at which distance?",
)
def test_tree_gives_every_rank_the_sum(student):
    check_sum(student, "tree")


@pytest.mark.exercise(
    points=2,
    ranks=[1, 2, 3, 4, 5, 6],
    group="tree",
    hint="rank 0 hears from ranks 1, 2 and 4 alone, and tells them",
)
def test_tree_lets_no_rank_send_much(student):
    check_sum(student, "tree")
    size = student.size
    steps = math.ceil(math.log2(size))
    naive = [size - 1] + [1] * (size - 1)
    student.limit(messages(student), [steps] + [steps + 1] * (size - 1), "messages", {"other way": naive})


@pytest.mark.exercise(
    points=3, group="ring", hint="take 3 ranks and write down which chunk each one sends in steps 0 and 1"
)
def test_reduce_scatter_leaves_one_chunk_of_the_sum(student):
    x, size = vectors(student.size), student.size
    got = student.call("reduce_scatter", [(vector,) for vector in x])
    chunks = np.array_split(sum(x), size)
    early = around(x, max(0, size - 2), hand_out=False)
    complete = around(x, size - 1, hand_out=False)
    student.compare(
        got,
        [chunks[(rank + 1) % size] for rank in range(size)],
        wrong={
            "one step too few": [early[rank][(rank + 2) % size] for rank in range(size)],
            "not own chunk": [complete[rank][rank] for rank in range(size)],
            "own part only": [np.array_split(x[rank], size)[(rank + 1) % size] for rank in range(size)],
            "mean, not sum": [chunks[(rank + 1) % size] / size for rank in range(size)],
        },
    )


def ring_mistakes(x):
    """Give what known mistakes in a ring leave on each rank."""
    steps = len(x) - 1
    ways = {
        "one step too few": around(x, max(0, steps - 1)),
        "no hand-out": around(x, steps, hand_out=False),
        "wrong chunk": around(x, steps, shift=1),
    }
    return {key: [np.concatenate(chunks) for chunks in held] for key, held in ways.items()}


@pytest.mark.exercise(
    points=3, group="ring", hint="which chunk is complete on which rank when the first round ends?"
)
def test_ring_gives_every_rank_the_sum(student):
    check_sum(student, "ring", **ring_mistakes(vectors(student.size)))


@pytest.mark.exercise(points=1, group="ring", hint="np.array_split gives empty chunks, too: they may travel")
def test_ring_works_with_fewer_numbers_than_ranks(student):
    check_sum(student, "ring", length=2, **ring_mistakes(vectors(student.size, 2)))


@pytest.mark.exercise(points=3, group="ring", hint="what travels in one step is one chunk, 1/p of the vector")
def test_ring_sends_two_vectors_at_most(student):
    check_sum(student, "ring", **ring_mistakes(vectors(student.size)))
    size = student.size
    chunk, vector = 8 * -(-LENGTH // size), 8 * LENGTH
    sent = [counted.bytes for counted in student.counted]
    wrong = {
        "other way": [(size - 1) * vector] + [vector] * (size - 1),
        "whole vector": [2 * (size - 1) * vector] * size,
        "whole vector, one round": [(size - 1) * vector] * size,
    }
    student.limit(sent, [2 * (size - 1) * chunk] * size, "bytes", wrong)
    student.limit(messages(student), [2 * (size - 1)] * size, "messages")
