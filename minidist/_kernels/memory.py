"""Keep the memory that was freed, for the next step needs as much again.

A training step makes some hundred arrays, and frees them before the next step makes arrays of the same sizes. Left to
itself, the C library of Linux gives each larger one back to the system and fetches new pages, which the system first
has to fill with zeros: for a small GPT, a quarter of the time of a step (90 ms with it, 65 ms without). Here it is
told to keep what it has. Other systems' libraries have no such switch, and are left alone.
"""

import ctypes
import os
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # the numbers of glibc's malloc.h


def keep_freed_memory() -> None:
    """Tell malloc to take large arrays from the heap, and not to shrink the heap; the user's own settings win."""
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has none
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 64 << 20)  # grow in large steps
