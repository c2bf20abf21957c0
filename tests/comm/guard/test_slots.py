"""Fingerprints that ranks compare in memory: two ranks of one process here, each with its own view of it."""

from types import SimpleNamespace

import numpy as np
import pytest

from minidist.comm.errors import CollectiveMismatch
from minidist.comm.guard.fingerprints import Fingerprint, digest, pack
from minidist.comm.guard.slots import PLACES, STRETCH, Slots


def call(slots, sequence, name="all_reduce", line="program.py:1"):
    """Let a rank come to a collective; give the requests of its gate."""
    endpoint = SimpleNamespace(guard_tags=range(1000))
    comm = SimpleNamespace(members=(0, 1), rank=slots.rank, name="world", endpoint=endpoint)
    said = Fingerprint(name, "sum", None, "<f8", (3,), None, line)
    return slots.gate(comm, sequence, pack(said), digest(said))


def two_ranks():
    memory = np.zeros((2, STRETCH), np.uint8)
    return Slots(memory, 0), Slots(memory, 1)


def test_who_comes_last_goes_on_at_once_and_the_other_at_its_next_look():
    first, last = two_ranks()
    for sequence in range(2 * PLACES + 1):
        requests = call(first, sequence)
        assert [request.test() for request in requests] == [False, False]
        assert call(last, sequence, line="another.py:2") is None
        assert [request.test() for request in requests] == [True, True]


def test_calls_that_differ_are_refused_on_both_ranks():
    first, last = two_ranks()
    for came, agreement in [call(first, 0), call(last, 0, "barrier", "another.py:2")]:
        assert came.test()
        with pytest.raises(CollectiveMismatch, match="differs between ranks in the call") as refused:
            agreement.test()
        assert refused.value.lines == {0: "program.py:1", 1: "another.py:2"}


def test_a_rank_that_is_far_ahead_sees_the_difference_itself():
    ahead, behind = two_ranks()
    came, agreement = call(ahead, 0)
    for sequence in range(1, PLACES + 1):
        call(ahead, sequence)
    assert all(
        request.test() for request in call(behind, 0, "barrier")
    )  # what was said there is written over
    assert came.test()
    with pytest.raises(CollectiveMismatch):
        agreement.test()
