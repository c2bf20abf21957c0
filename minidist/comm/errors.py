"""What can go wrong between ranks.

A wrong argument (a rank that does not exist, a read-only buffer) is a plain `ValueError` or `TypeError`, raised
before anything is sent. The errors here are about what *other* ranks did or did not do.
"""


class CommError(RuntimeError):
    """Say what went wrong between ranks."""


class MessageMismatch(CommError):
    """Say that a message is not what its receiver expected: dtype, shape or size differ."""


class DeadlockError(CommError):
    """Say that no rank can move any more, and what each of them waits for."""


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
