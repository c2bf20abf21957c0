"""The IDX file format: how MNIST and Fashion-MNIST store arrays of bytes.

    offset 0   two zero bytes
    offset 2   the type of the values; 8 says unsigned bytes, the only type those two use
    offset 3   the number of dims d
    offset 4   d sizes, big-endian uint32
    then       the values in C order, up to the end of the file

The four bytes at the front are called the magic number: 2051 for images (8 * 256 + 3), 2049 for labels. A
reader that trusts such a file trains happily on garbage, so every field is checked here, and what is wrong is
said with its file and offset.
Source: Y. LeCun, C. Cortes and C. Burges, "The MNIST database of handwritten digits", 1998.
Read next: `mnist.py`, which puts four such files together.
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from minidist.errors import UserError

_GZIP_MARK = b"\x1f\x8b"


def read_idx(path: Path, ndim: int) -> np.ndarray:
    """Read a file of unsigned bytes in `ndim` dims, gzipped or not, as a read-only uint8 array."""
    content = _unpacked(path)
    magic = 8 * 256 + ndim
    if len(content) < 4:
        raise _wrong(path, len(content), "the end of the file", f"the four bytes of the magic number {magic}")
    found = int.from_bytes(content[:4], "big")
    if found != magic:
        what = "images" if ndim == 3 else "labels"
        raise _wrong(path, 0, f"the magic number {found}", f"{magic}, the mark of an IDX file of {what}")
    header = 4 + 4 * ndim
    if len(content) < header:
        raise _wrong(path, len(content), "the end of the file", f"a header of {header} bytes")
    shape = tuple(int.from_bytes(content[i : i + 4], "big") for i in range(4, header, 4))
    expected = header + math.prod(shape)  # Python integers: four sizes of 2**32 - 1 cannot overflow
    if len(content) != expected:
        sizes = " x ".join(map(str, shape))
        spare = len(content) - expected
        got = f"{spare} bytes too many" if spare > 0 else "the end of the file"
        raise _wrong(path, min(len(content), expected), got, f"{expected} bytes in all for {sizes} values")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _unpacked(path: Path) -> bytes:
    """Read a whole file; a gzipped one is known by its first two bytes, whatever its name."""
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if not stored.startswith(_GZIP_MARK):
        return stored
    try:
        return gzip.decompress(stored)
    except EOFError:
        raise _wrong(path, len(stored), "the end of the file", "more gzipped data") from None
    except (OSError, zlib.error) as error:
        raise UserError(f"{path} is not a sound gzip file ({error}): copy or download it again") from None


def _wrong(path: Path, offset: int, got: str, expected: str) -> UserError:
    return UserError(f"{path}: at offset {offset} there is {got}, expected {expected}")
