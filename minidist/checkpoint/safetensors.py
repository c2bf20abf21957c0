"""A file of arrays: the format safetensors, which other libraries read and write, too.

    8 bytes            the header's length, little-endian
    header             JSON: {"weights/head.bias": {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]}, ...}
    data               the arrays' bytes, one behind another, in the order of the header

There is nothing in it that could be executed, as there is in a pickle: whoever reads a file from a stranger gets
numbers. It is written here array by array, straight from the memory in which training has it, without a copy.
The format is described at https://github.com/huggingface/safetensors. Read next: `state.py`.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minidist.checkpoint import disk
from minidist.errors import UserError

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
NAMES = {np.dtype(numpy).str: name for name, numpy in DTYPES.items()}


class Damaged(UserError):
    """Say what is wrong with a file."""


def write(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> dict[str, Any]:
    """Write arrays by name, and texts about them; give the file's size and the sha256 of the header and each array."""
    entries: dict[str, Any] = {"__metadata__": dict(about)}
    offset = 0
    for name, array in arrays.items():
        stop = offset + array.nbytes
        kind = NAMES[array.dtype.newbyteorder("<").str]
        entries[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, stop]}
        offset = stop
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)  # so that the data are aligned
    header = len(header).to_bytes(8, "little") + header
    digests = disk.write_file(path, [header, *map(as_bytes, arrays.values())])
    return {
        "bytes": len(header) + offset,
        "header_sha256": digests[0],
        "sha256": dict(zip(arrays, digests[1:], strict=True)),
    }


def as_bytes(array: np.ndarray) -> np.ndarray:
    """See an array's memory as bytes; only on a big-endian machine, or for gaps between numbers, it is copied."""
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return little.reshape(-1).view(np.uint8)


class Reader:
    """Read arrays from a file whose size and header are what they should be.

    Raises Damaged, naming the file and what is wrong, else.
    """

    def __init__(self, path: Path, size: int, header_sha256: str, about: Mapping[str, str]) -> None:
        self.path = path
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
            found = os.fstat(self._file.fileno()).st_size
        except FileNotFoundError:
            raise Damaged(f"{path.name} is missing") from None
        try:
            if found != size:
                raise Damaged(f"{path.name} is {found} of {size} bytes")
            header = self._file.read(8)
            header += self._file.read(min(int.from_bytes(header, "little"), size))
            entries = self._parsed(header[8:])
            for key, expected in about.items():
                if (got := entries.get("__metadata__", {}).get(key)) not in (None, expected):
                    raise Damaged(
                        f"{path.name} is of {key} {got}, among files of {key} {expected}: they were mixed"
                    )
            if hashlib.sha256(header).hexdigest() != header_sha256:
                raise Damaged(
                    f"the header of {path.name} is damaged: its sha256 is not the one of the manifest"
                )
        except BaseException:
            self.close()
            raise
        self._entries, self._begin = entries, len(header)

    def _parsed(self, header: bytes) -> dict[str, Any]:
        try:
            entries = json.loads(header)
        except ValueError:  # the digest will differ, too
            return {}
        return entries if isinstance(entries, dict) else {}

    def read(self, name: str, sha256: str) -> np.ndarray:
        """Give an array in one dimension; what was written under this name, to the last bit."""
        entry = self._entries[name]
        start, stop = entry["data_offsets"]
        array = np.empty(stop - start, np.uint8)
        self._file.seek(self._begin + start)
        got = self._file.readinto(array.data)
        if got != stop - start or hashlib.sha256(array.data).hexdigest() != sha256:
            raise Damaged(f"{name} in {self.path.name} is damaged: its sha256 is not the one of the manifest")
        stored = array.view(DTYPES[entry["dtype"]])
        return stored.astype(stored.dtype.newbyteorder("="), copy=False)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()
