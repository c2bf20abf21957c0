"""Whether anybody can ever read what a receive brings: an array that nobody holds is lost with it.

    comm.recv(x[2:4], 0)        a view: its memory is x's, which the program holds
    comm.recv(x[[0, 2]], 0)     a copy: nobody holds it, and x stays as it was

Python counts who holds an object. A call of `recv` itself holds its argument a few times, how often depends on the
version of Python. So the same is counted once for an array that surely is a temporary, and again for one that surely
has a name; where the two do not differ, nothing can be said.

Arrays of one number are let through: a token, received to be forgotten, is a message as well.

Read next: `requests.py`, which asks.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable

import numpy as np

from minidist.comm.events import Event, Listener


def is_temporary(event: Event) -> bool:
    """Say whether nobody but the receive holds the array that it fills, nor the memory of which that is a view."""
    assert event.out is not None
    if event.out.size <= 1:
        return False
    temporary = _holders_of_temporary(event.call)
    holders = _holders(event)
    return holders is not None and temporary is not None and all(map(operator.le, holders, temporary))


def _holders(event: Event) -> tuple[int, ...] | None:
    """Count who holds the array to be filled, and then its base; None: its memory is not an array's."""
    assert event.out is not None
    array, base = sys.getrefcount(event.out), event.out.base
    if base is None:
        return (array,)
    if type(base) is not np.ndarray or base.base is not None:
        return None
    return (array, sys.getrefcount(base))


class _Counts(Listener):
    """Count at the place where a guard counts."""

    holders: tuple[int, ...] | None = None

    def before(self, event: Event) -> None:
        """Count, and stop the receive."""
        self.holders = _holders(event)
        raise _Enough


class _Enough(Exception):
    """Stop a receive that was only started to be looked at."""


@functools.cache
def _holders_of_temporary(call: str) -> tuple[int, ...] | None:
    """Count who holds a temporary, and the base of one, that is an argument of this call; None: as many hold any."""
    from minidist.comm.threads import world_of_one

    comm, counts, own = world_of_one(), _Counts(), np.empty(4)
    comm.listeners.append(counts)

    def count(receive: Callable[[], object]) -> tuple[int, ...]:
        with contextlib.suppress(_Enough):
            receive()
        return counts.holders or ()

    if call == "sendrecv":
        temporary = count(lambda: comm.sendrecv(own, 0, np.empty(4)[1:], 0))
        named = count(lambda: comm.sendrecv(own, 0, own[1:], 0))
        array = count(lambda: comm.sendrecv(own, 0, own, 0))
    elif call == "recv":
        temporary = count(lambda: comm.recv(np.empty(4)[1:], 0))
        named = count(lambda: comm.recv(own[1:], 0))
        array = count(lambda: comm.recv(own, 0))
    else:
        temporary = count(lambda: comm.irecv(np.empty(4)[1:], 0))
        named = count(lambda: comm.irecv(own[1:], 0))
        array = count(lambda: comm.irecv(own, 0))
    return temporary if named[1] > temporary[1] and array[0] > temporary[0] else None
