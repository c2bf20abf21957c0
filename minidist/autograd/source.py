"""Which line of the user's program are we working for? Error messages quote it."""

import os
import sys
from types import CodeType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

_ours: set[str] = (
    set()
)  # files of minidist that were met: to find a name here is quicker than to compare its start

Line = tuple[CodeType, int]  # a place in a program: a code object, and how far into its bytecode


def user_line() -> Line:
    """Find the innermost caller outside minidist (if there is none, the outermost one)."""
    frame = sys._getframe(2)  # the caller of our caller, which is still one of us, or already the user
    while frame.f_code.co_filename in _ours or _is_ours(frame.f_code.co_filename):
        back = frame.f_back
        if back is None or back.f_code.co_filename.startswith("<frozen"):  # python -m minidist.train
            break
        frame = back
    return frame.f_code, frame.f_lasti  # not the frame itself: it would keep all its variables alive


def _is_ours(file: str) -> bool:
    ours = file.startswith(_PACKAGE)
    if ours:
        _ours.add(file)
    return ours


def describe(line: Line) -> str:
    """Write a place as file:line. Only an error needs the number, so only here it is looked up."""
    code, position = line
    for start, end, number in code.co_lines():
        if start <= position < end and number is not None:
            return f"{code.co_filename}:{number}"
    return f"{code.co_filename}:{code.co_firstlineno}"
