"""The same program, called as a function on ranks that `minidist.launch` has started: a program for tests."""

import runpy
import sys
from pathlib import Path

import minidist

PROGRAM, OPTIONS = str(Path(__file__).with_name("injected.py")), sys.argv[1:]


def program():
    sys.argv = [PROGRAM, *OPTIONS]
    try:
        runpy.run_path(PROGRAM, run_name="__main__")
    except SystemExit as end:  # at the end of a program that is no failure
        if end.code:
            raise


if __name__ == "__main__":
    try:
        minidist.launch(program, 4)
    except minidist.RankFailed as error:
        print(error, file=sys.stderr)
        sys.exit(1)
