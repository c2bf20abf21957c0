"""Making a student's file from the reference: each solution becomes one line that says what is to do.

    def naive(comm, x):                         def naive(comm, x):
        # 04a, in the docstring                     # the same docstring
        # begin solution               -->          raise NotImplementedError("04a: naive")
        ...
        # end solution

So there is one source of truth: an exercise's `reference.py`. Its `student.py` is written by

    python -m minidist.testing.stubs exercises/04_all_reduce
"""

import re
import sys
from pathlib import Path

BEGIN, END = "# begin solution", "# end solution"


def strip(text: str) -> str:
    """Return a reference's text without its solutions.

    Raises ValueError where a solution does not begin, end or belong to a function whose docstring begins with "04a:".
    """
    lines: list[str] = []
    inside, number, name = False, "", ""
    for n, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"def (\w+)\(", line):
            number, name = "", found[1]
        if (found := re.match(r'    """(\d\d[a-z]):', line)) and not number:
            number = found[1]
        if line.strip() in (BEGIN, END):
            if inside != (line.strip() == END) or not number:
                raise ValueError(
                    f'line {n}: {line.strip()!r} after a docstring that begins with "04a:", in pairs'
                )
            if not inside:
                indent = line[: len(line) - len(line.lstrip())]
                lines.append(f'{indent}raise NotImplementedError("{number}: {name}")')
            inside = not inside
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError(f"the last {BEGIN!r} has no end")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        (folder / "student.py").write_text(strip((folder / "reference.py").read_text()))
