"""Keep the memory that was freed, for the next step needs as much again, and have it in large pages.

A training step makes some hundred arrays, and frees them before the next step makes arrays of the same sizes. Left to
itself, the C library of Linux gives each larger one back to the system and fetches new pages, which the system first
has to fill with zeros: for a small GPT, a quarter of the time of a step (82 ms with it, 60 ms without). Here it is
told to keep what it has. Other systems' libraries have no such switch, and are left alone.

A page has 4 kB, and the processor remembers where some two thousand of them are; each further one has to be looked up,
which is slow. In pages of 2 MB a whole model is a few entries: the step of that GPT takes up to a tenth less. NumPy
asks for large pages where an array has 4 MB or more; here they are asked for at the start of the heap, where smaller
ones live.
"""

import ctypes
import os
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # the numbers of glibc's malloc.h
_HUGEPAGE = 14  # of Linux's mman.h
_LARGE_PAGE = 2 << 20
_HEAP = 256 << 20  # bytes to have in large pages


def keep_freed_memory() -> None:
    """Tell malloc to take large arrays from the heap, and not to shrink the heap; the user's own settings win."""
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):  # musl has none
        return
    library.mallopt(_MMAP_THRESHOLD, 1 << 30)
    library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    library.mallopt(_TOP_PAD, 64 << 20)  # grow in large steps
    _ask_for_large_pages(library)


def _ask_for_large_pages(library: ctypes.CDLL) -> None:
    """Let the heap grow by `_HEAP` bytes, of which none is used yet, and ask the system for large pages there."""
    library.malloc.restype = library.sbrk.restype = ctypes.c_void_p
    library.malloc.argtypes = (ctypes.c_size_t,)
    library.free.argtypes = (ctypes.c_void_p,)
    library.sbrk.argtypes = (ctypes.c_ssize_t,)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    start = library.malloc(_HEAP)
    if start is None:
        return
    library.free(start)
    end = library.sbrk(0) // _LARGE_PAGE * _LARGE_PAGE
    start = start // _LARGE_PAGE * _LARGE_PAGE
    if start < end <= start + 2 * _HEAP:  # else malloc took the memory from elsewhere
        library.madvise(start, end - start, _HUGEPAGE)
