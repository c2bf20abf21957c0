"""The command `python -m minidist.comm.guard DIR`: tell the last operations of every rank, and where they part.

MINIDIST_RECORDER=DIR mpiexec -n 4 python program.py       keeps them in DIR, also if a rank is killed
"""

import sys
from pathlib import Path

from minidist.recorded import first_difference, read_all, tell


def main(arguments: list[str]) -> int:
    """Run the command."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(
            "usage: python -m minidist.comm.guard DIR     (DIR: what MINIDIST_RECORDER was)", file=sys.stderr
        )
        return 2
    ranks = read_all(Path(arguments[0]))
    lines = tell(ranks, list(ranks))
    if not lines:
        print(
            f"{arguments[0]} holds no operations; run the program with MINIDIST_RECORDER={arguments[0]}",
            file=sys.stderr,
        )
        return 2
    print("The last operations of every rank; times are before the last of all:")
    print("\n".join(lines))
    print(first_difference(ranks) or "No collective differs between the ranks.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
