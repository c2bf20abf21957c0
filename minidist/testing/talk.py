"""The communicator that a student gets: a few calls of the engine's, and no way around them.

    Talk(comm, offers=("send", "recv"))      .rank, .size, .send, .recv; anything else says what is offered

An exercise that asks for an all-reduce offers none. What is offered works as in the engine (it *is* the engine's), so
its errors, its guard and its counters are the engine's, too.

Read next: `on_rank.py`, where a student's function is called with it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any


class Talk:
    """Offer rank, size and the calls named in `offers` of a communicator."""

    def __init__(self, comm: Any, offers: Sequence[str], calls: "Counter[str]") -> None:
        """Count in `calls` how often each was called."""
        self.rank: int = comm.rank
        self.size: int = comm.size
        self._offers = tuple(offers)
        for name in offers:
            setattr(self, name, _counting(getattr(comm, name), name, calls))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"comm.{name} is not offered: this exercise is built from {in_words('comm.', self._offers)}"
        )


def _counting(call: Callable[..., Any], name: str, calls: "Counter[str]") -> Callable[..., Any]:
    def counted(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return call(*arguments, **options)

    return counted


def in_words(before: str, names: Sequence[str]) -> str:
    """Return "comm.send, comm.recv and comm.sendrecv"."""
    words = [before + name for name in names] or ["NumPy alone"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
