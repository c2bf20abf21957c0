"""Fetching from shelves: alone, in any order, any number of times; and nobody passes close() before all are through."""

import numpy as np
import pytest

from minidist.comm import Communicator
from minidist.comm.arrays import cut
from minidist.comm.shelf import Shelf


def fetch(shelf: Shelf, number: int, n: int) -> np.ndarray:
    comm = shelf.comm
    whole = np.full(n, -1.0)
    pieces = [whole[piece] for piece in cut(n, comm.size)]
    pieces[comm.rank][...] = comm.rank + 10 * number
    shelf.fetch(number, pieces).wait()
    return whole


def expected(number: int, n: int, size: int, plus: float = 0.0) -> np.ndarray:
    return np.concatenate(
        [
            np.full(len(piece), r + 10.0 * number + plus)
            for r, piece in enumerate(np.array_split(np.arange(n), size))
        ]
    )


@pytest.mark.ranks(1, 2, 3, 4)
def test_each_rank_fetches_what_it_likes_as_often_as_it_likes(comm: Communicator) -> None:
    sizes = [7, 2, 3000]  # fewer numbers than ranks, and more than a message that is buffered
    shelf = Shelf(comm, "weights")
    for turn in (1, 2):
        parts = [
            np.full(len(range(n)[cut(n, comm.size)[comm.rank]]), comm.rank + 10.0 * i)
            for i, n in enumerate(sizes)
        ]
        shelf.open(parts)
        for number in (2, 0, 1, 2)[
            : comm.rank + turn - 1
        ]:  # rank 0 nothing at first, the others more and more
            assert (fetch(shelf, number, sizes[number]) == expected(number, sizes[number], comm.size)).all()
        shelf.say_no_more().wait()
        shelf.close()
        for part in parts:
            part[...] = np.nan  # nobody reads it any more


@pytest.mark.ranks(3)
def test_questions_and_answers_are_counted(comm: Communicator) -> None:
    shelf = Shelf(comm, "weights")
    before = comm.counters
    shelf.open([np.zeros(5)])
    fetch(shelf, 0, 15)
    shelf.say_no_more().wait()
    shelf.close()
    after = comm.counters
    said = {p: tuple(np.subtract(after[p], before[p])) for p in ("weights", "control")}
    assert said == {"weights": (2, 80), "control": (4, 32)}
