"""Bytes and texts among ranks, and what one rank has failed at, told to all.

    rank 0   ok                                        \
    rank 1   ok                                         >   UserError("shard-0002 ... No space left") on all ranks
    rank 2   OSError: No space left on device          /

A collective that only some ranks enter never ends. So whoever is about to write or read a file together with others
does it inside `together`: either all go on, or all raise the same error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from minidist.comm.communicator import Communicator
from minidist.errors import UserError

Result = TypeVar("Result")


class FailedTogether(UserError):
    """Say what the first rank that failed has said; errno: of its system call, or 0."""

    def __init__(self, message: str, errno: int = 0) -> None:
        super().__init__(message)
        self.errno = errno


def gather_bytes(comm: Communicator, mine: bytes) -> list[bytes] | None:
    """Give the first rank every rank's bytes, and the others None."""
    sizes = comm.all_gather(np.array([len(mine)]), purpose="control")
    joined = comm.gather(np.frombuffer(mine, np.uint8), purpose="control")
    return None if joined is None else _cut(joined, sizes)


def all_gather_texts(comm: Communicator, text: str, purpose: str = "control") -> list[str]:
    """Give every rank every rank's text."""
    mine = np.frombuffer(text.encode(), np.uint8)
    sizes = comm.all_gather(np.array([len(mine)]), purpose=purpose)
    return [piece.decode() for piece in _cut(comm.all_gather(mine, purpose=purpose), sizes)]


def _cut(joined: np.ndarray, sizes: np.ndarray) -> list[bytes]:
    """Cut what all ranks gave into what each of them gave."""
    return [piece.tobytes() for piece in np.split(joined, np.cumsum(sizes)[:-1])]


def broadcast_text(comm: Communicator, text: str | None, root: int = 0) -> str:
    """Give every rank the root's text."""
    mine = np.frombuffer(text.encode(), np.uint8) if text is not None and comm.rank == root else None
    return comm.broadcast(mine, root, purpose="control").tobytes().decode()


def together(comm: Communicator, action: Callable[..., Result], *arguments: Any) -> Result:
    """Do something on this rank while the others do it on theirs; a collective.

    Returns what the action returns. Raises FailedTogether, on all ranks, if it raises OSError or UserError on one.
    """
    said, errno, result = "", 0, None
    try:
        result = action(*arguments)
    except OSError as error:
        said, errno = error.strerror or str(error), error.errno or 0
    except UserError as error:
        said, errno = str(error), getattr(error, "errno", 0)
    told = comm.all_gather(np.array([[bool(said), errno]]), purpose="control")  # (ranks, 2)
    if told[:, 0].any():
        root = int(np.argmax(told[:, 0]))
        raise FailedTogether(broadcast_text(comm, said, root), int(told[root, 1]))
    return result  # type: ignore[return-value]
