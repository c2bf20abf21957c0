"""What is asked of a disk, so that a file is whole or not there, whatever happens in between.

    write, write, ...  fsync(file)  fsync(its directory)  rename  fsync(the directory above)

`write` puts bytes into the memory of the operating system, `fsync` waits until they are on the disk, and a rename
happens or does not happen, never half. A file's *name* belongs to its directory, which has to be synced, too. A process
that is killed loses nothing that was written; a machine that loses power keeps what was synced.
Read next: `safetensors.py`.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CHUNK = 1 << 26  # bytes in one call: systems have limits, and a long write cannot be interrupted


def write_file(path: Path, blocks: Iterable[Any]) -> list[str]:
    """Write blocks of bytes one behind another, see that they are on the disk; give the sha256 of each block."""
    digests = []
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        for block in blocks:
            view = memoryview(block)
            digests.append(hashlib.sha256(view).hexdigest())
            while len(view):
                view = view[os.write(handle, view[:CHUNK]) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    return digests


def sync_directory(path: Path) -> None:
    """See that the names in a directory are on the disk."""
    if os.name != "posix":  # elsewhere a directory cannot be opened, and the system sees to it
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def commit(temporary: Path, final: Path) -> None:
    """Give a finished directory its name, for good."""
    sync_directory(temporary)
    os.rename(temporary, final)
    sync_directory(final.parent)


def discard(directory: Path, first: str) -> None:
    """Remove a directory with all files in it, the file `first` before the others; what is not there is no error."""
    with contextlib.suppress(OSError):
        os.unlink(directory / first)
    shutil.rmtree(directory, ignore_errors=True)
