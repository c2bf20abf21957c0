"""Exercises as students see them: pytest sessions of their own, on threads. The long form: tests/long_exercises.py."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minidist.testing.diagnosis import SENTENCES, Finding, diagnose
from minidist.testing.stubs import strip

EXERCISES = Path(__file__).parents[2] / "exercises"
ALL_REDUCE = EXERCISES / "04_all_reduce"


@pytest.fixture
def grade(tmp_path):
    """Grade one file of an exercise; return its tests by name, and what pytest said."""

    def grade(student, *options):
        result = tmp_path / "score.json"
        where = [str(ALL_REDUCE), "--student", student, "--score-json", str(result)]
        command = [sys.executable, "-m", "pytest", *where, "--exercise-transport", "threads", *options]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=150)
        assert result.exists(), ran.stdout + ran.stderr
        return {test["name"]: test for test in json.loads(result.read_text())["tests"]}, ran.stdout

    return grade


@pytest.mark.parametrize(
    "reference", sorted(EXERCISES.glob("*/reference.py")), ids=lambda path: path.parent.name
)
def test_a_students_file_is_the_reference_without_its_solutions(reference):
    assert (reference.parent / "student.py").read_text() == strip(reference.read_text())


def test_a_reference_with_a_solution_that_does_not_end_is_refused():
    text = 'def naive(comm, x):\n    """04a: Sum."""\n    # begin solution\n    return x\n'
    with pytest.raises(ValueError, match="has no end"):
        strip(text)
    with pytest.raises(ValueError, match="line 2: '# begin solution' after a docstring"):
        strip(text.replace('    """04a: Sum."""\n', ""))


def test_stubs_score_nothing_and_every_test_is_to_do(grade):
    tests, said = grade("student.py")
    assert {(test["status"], test["points"]) for test in tests.values()} == {("todo", 0)}
    assert tests["test_naive_gives_every_rank_the_sum"]["message"] == "04a: naive"
    assert "points: 0 of 17" in said


def test_the_reference_scores_all_points(grade):
    tests, said = grade("reference.py", "-k", "naive or scatter")
    ran = [test for test in tests.values() if test["status"] != "not run"]
    assert [test["points"] for test in ran] == [2, 1, 3]
    assert all(test["points"] == test["max_points"] for test in ran)
    assert "ranks on threads" in said


def test_a_mistake_is_named_with_rank_line_numbers_and_ratio(grade):
    tests, said = grade("mistakes/divided.py", "-k", "naive_gives or scatter")
    told = tests["test_naive_gives_every_rank_the_sum"]
    assert (told["status"], told["points"], told["max_points"]) == ("wrong", 0, 2)
    assert re.search(
        r"naive \(.*divided\.py:\d+\), 2 ranks on threads:\n    rank 0: it returned", told["message"]
    )
    assert told["diagnosis"].startswith(f"looks like {SENTENCES['mean, not sum']}")
    assert told["diagnosis"].endswith("0.250 x the right one on 4 ranks, 0.333 x on 3, 0.500 x on 2")
    assert told["diagnosis"] in said
    assert tests["test_reduce_scatter_leaves_one_chunk_of_the_sum"]["points"] == 3


def test_a_diagnosis_needs_two_numbers_of_ranks_that_agree_and_none_that_does_not():
    known, other = (
        Finding(frozenset({"wrong root", "own part only"})),
        Finding(frozenset({"wrong root"}), 2.0),
    )
    assert diagnose({2: known, 3: other}) == f"looks like {SENTENCES['wrong root']}"
    both = diagnose({2: other, 3: Finding(frozenset({"wrong root"}), 3.0)})
    assert both.endswith("; your result is 3.000 x the right one on 3 ranks, 2.000 x on 2")
    assert diagnose({1: other, 2: other}) == ""  # one rank alone says nothing
    assert diagnose({2: known, 3: known}) == ""  # two mistakes would do that
    assert diagnose({2: other, 3: other, 4: Finding()}) == ""
    assert diagnose({2: other, 3: other, 4: None}) == ""  # a crash
