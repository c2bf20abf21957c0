"""A message that says what it is: a header (dtype, shape, bytes) and the payload.

A receiver can so refuse what it did not expect before its buffer is touched, and can receive what it could
not know: pieces of uneven sizes need no counts. A small payload (up to 4 KiB) rides in the same envelope as its
header and costs one transport message. A larger one follows by itself; its header names the tag it has.

    small:  [ header | payload ]              large:  [ header ]  [ payload ............ ]

Read `channel.py` next, which sends and receives them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

INLINE = 4096  # bytes: above it a copy into the envelope costs more than a second message
# dtype, payload bytes, payload tag, number of dims; then one integer for each dim
_FIXED = struct.Struct("<8sqqq")
LONGEST = _FIXED.size + 64 * 8 + INLINE  # NumPy's arrays have at most 64 dims


@dataclass(frozen=True)
class Header:
    """Say what a message holds."""

    dtype: np.dtype
    shape: tuple[int, ...]
    nbytes: int
    payload_tag: int
    line: str = ""  # "file:line" of the call that sent it, where listeners want to know


def pack(array: np.ndarray, payload_tag: int, line: str = "") -> np.ndarray:
    """Give the envelope of a message: its header, the payload too if it is small, and `line`, as much as has room."""
    header = _FIXED.pack(array.dtype.str.encode(), array.nbytes, payload_tag, array.ndim)
    header += struct.pack(f"<{array.ndim}q", *array.shape)
    if array.nbytes <= INLINE:
        header += array.tobytes()
    if line:
        header += line.encode()[-8 * (64 - array.ndim) :] if array.ndim < 64 else b""
    return np.frombuffer(header, np.uint8)


def unpack(envelope: np.ndarray) -> tuple[Header, np.ndarray]:
    """Read an envelope: its header, and the payload if it is small."""
    dtype, nbytes, payload_tag, ndim = _FIXED.unpack_from(envelope.data)
    shape = struct.unpack_from(f"<{ndim}q", envelope.data, _FIXED.size)
    rest = envelope[_FIXED.size + 8 * ndim :]
    inline = nbytes if nbytes <= INLINE else 0
    line = rest[inline:].tobytes().decode(errors="replace") if rest.size > inline else ""
    return Header(np.dtype(dtype.rstrip(b"\0").decode()), shape, nbytes, payload_tag, line), rest[:inline]
