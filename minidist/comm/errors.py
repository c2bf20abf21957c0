"""What can go wrong between ranks.

A wrong argument (a rank that does not exist, a read-only buffer) is a plain `ValueError` or `TypeError`, raised
before anything is sent. The errors here are about what *other* ranks did or did not do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any


class CommError(RuntimeError):
    """Say what went wrong between ranks.

    What the guard has found says also its `kind`, the world ranks concerned, and "file:line" of each of them.
    """

    def __init__(
        self,
        text: str = "",
        kind: str = "",
        ranks: Sequence[int] = (),
        lines: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.kind, self.ranks, self.lines = kind, tuple(sorted(ranks)), dict(lines or {})


class MessageMismatch(CommError):
    """Say that a message is not what its receiver expected: dtype, shape or size differ."""


class CollectiveMismatch(MessageMismatch):
    """Say that ranks call different collectives, or the same one with arguments that do not fit together."""


class RequestFault(CommError):
    """Say that a request, or an array that it reads or fills, was not used as it must be."""


class DeadlockError(CommError):
    """Say that no rank can move any more, and what each of them waits for.

    standings: where the guard has found each rank to stand ({rank: `guard.graph.Standing`}); empty without the guard.
    """

    standings: Mapping[int, Any] = MappingProxyType({})


class RankStopped(CommError):
    """Say that this rank was stopped because another one failed."""


class NotShared(CommError):
    """Say why ranks cannot have memory that all of them see; raised on all of them together."""


def wrong_size(expected: int, got: int | str, source: int) -> str:
    """Say that a message has another size than its receiver expected."""
    return (
        f"expected {expected} bytes from rank {source}, got {got}: "
        "do all ranks give arrays of the same shape and dtype?"
    )
