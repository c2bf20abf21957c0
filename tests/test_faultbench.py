"""The bench reads what its programs say of themselves, judges strictly, and runs; all of it is a stage of .ci/full."""

import re
from pathlib import Path
from typing import Any

import pytest

from minidist.faultbench.__main__ import DETECTORS, PROGRAMS
from minidist.faultbench.judge import HUNG, Run, problems
from minidist.faultbench.programs import Program, read
from minidist.faultbench.repeat import guarded_job, one_call
from minidist.faultbench.run import run
from minidist.faultbench.table import Result, as_markdown, rows

ALL = {program.name: program for program in read(PROGRAMS)}
TEXT = '''"""Wait for one that has left."""
# fault: left | cycle
# ranks: 4 8
# left: 1
comm.recv(x, 1)  # <- rank 0
comm.barrier()  # <- rank n - 1, others
comm.barrier()  # <- (rank 2)
'''
LEFT = Program(Path("faulty/wait.py"), TEXT)
RIGHT = {"kind": "left", "ranks": [0, 1, 3], "lines": {"0": "/a/wait.py:5", "3": "wait.py:6"}, "time": 0.1}


def test_a_program_says_what_is_to_be_found_in_it() -> None:
    assert (LEFT.kinds, LEFT.ranks, LEFT.prints(4)) == (("left", "cycle"), (4, 8), None)
    expected = LEFT.expected(8)
    assert (expected.must, expected.others, expected.may) == ({0, 1, 7}, {3, 4, 5, 6}, {2})
    assert expected.lines == {0: {5}, 2: {7}, 7: {6}, **{rank: {6} for rank in (3, 4, 5, 6)}}


def test_the_programs_are_many_and_half_of_them_are_correct() -> None:
    faulty = [program for program in ALL.values() if program.kinds]
    assert min(len(faulty), len(ALL) - len(faulty)) >= 45
    for program in ALL.values():
        for n in program.ranks:
            expected = program.expected(n)
            assert not program.kinds or expected.known, program.name
            assert expected.known <= set(range(n)), program.name
    kinds = {kind for program in faulty for kind in program.kinds}
    assert set().union(*DETECTORS.values()) - {"straggler"} <= kinds


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"kind": "mismatch"}, "kind is 'mismatch'"),
        ({"ranks": [0, 3]}, r"without \[1\]"),
        ({"ranks": [1, 3]}, r"without \[0\]"),
        ({"ranks": [0, 1, 2, 3], "lines": {**RIGHT["lines"], "2": "wait.py:6"}}, "rank 2 is at wait.py:6"),
        ({"lines": {"0": "wait.py:5", "3": "wait.py:5"}}, "rank 3 is at wait.py:5, expected wait.py:6"),
        ({"lines": {"0": "wait.py:5"}}, "rank 3 is at no line"),
    ],
)
def test_a_wrong_kind_rank_or_line_is_red(change: dict[str, Any], said: str | None) -> None:
    found = problems(LEFT, 4, Run(1, "", "", 1.0, [RIGHT | change]))
    assert (found == []) if said is None else any(re.search(said, one) for one in found)


def test_anything_but_one_report_and_an_honest_end_is_red() -> None:
    assert problems(LEFT, 4, Run(1, "", "", 1.0, [RIGHT, RIGHT]))
    assert problems(LEFT, 4, Run(1, "", "", 1.0, []))
    assert problems(LEFT, 4, Run(0, "", "", 1.0, [RIGHT])) == ["exit code is 0"]
    assert problems(LEFT, 4, Run(HUNG, "", "", 1.0, [RIGHT]))
    assert problems(LEFT, 4, Run(1, "", "", 1.0, [RIGHT], ["process 7"])) == ["left behind: process 7"]


def test_a_correct_program_must_end_well_print_what_is_right_and_cause_no_word() -> None:
    program = Program(Path("correct/sum.py"), "# prints: n * 1.5\n")
    assert problems(program, 2, Run(0, "3.0\n", "", 1.0)) == []
    assert problems(program, 2, Run(0, "4.0\n", "", 1.0)) == ["printed '4.0', expected '3.0'"]
    assert problems(program, 2, Run(1, "3.0\n", "", 1.0)) == ["exit code is 1"]
    assert problems(program, 2, Run(0, "3.0\n", "", 1.0, [RIGHT])) == ["a false alarm: left"]


def test_the_table_has_a_row_for_each_kind() -> None:
    run_ = Run(1, "", "", 1.0, [RIGHT])
    results = [Result(LEFT, 4, run_, [], "hangs"), Result(LEFT, 8, run_, ["late"], "says nothing")]
    assert rows(results) == [
        ("left", "1", "found 1 of 2", "0.10 s, 0.10 s", "hangs 1 of 2, says nothing 1 of 2")
    ]
    assert as_markdown(rows(results)).count("\n") == 2


def test_every_third_program_on_threads() -> None:
    quick = [
        program
        for program in ALL.values()
        if program.repeats
        and 4 in program.ranks
        and "sleep" not in program.text
        and "sys.exit" not in program.text
        and "died" not in program.kinds
    ]
    red = {}
    with guarded_job(4, "threads") as (job, report):
        for program in quick[::3]:
            red[program.name] = problems(program, 4, one_call(job, report, program, 20.0))
    assert {name: found for name, found in red.items() if found} == {}


@pytest.mark.parametrize("name", ["cycle_ring_receives_first", "ring_odd_even"])
def test_programs_on_mpi(name: str) -> None:
    assert problems(ALL[name], 2, run(ALL[name], 2, "mpi", 20.0)) == []
