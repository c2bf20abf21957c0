"""Every exercise grades as it says: its stubs, its reference, its known mistakes; and nothing that is hostile gains.

A mistake is a whole student's file in `exercises/*/mistakes/`. Its first two lines say what it must come to:

    # loses: test_a, test_b           exactly these tests lose their points
    # diagnosis: sum, not mean        exactly this is told, somewhere; none: nothing is
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minidist.launch import mpiexec
from minidist.testing.diagnosis import SENTENCES

EXERCISES = Path(__file__).parents[1] / "exercises"
FOLDERS = sorted(path.parent for path in EXERCISES.glob("*/reference.py"))
MISTAKES = sorted(EXERCISES.glob("*/mistakes/*.py"))


def grade(folder, student, where, transport="threads", *options):
    """Grade one file; return the tests by name, and what pytest said."""
    result = where / "score.json"
    arguments = [str(folder), "--student", str(student), "--score-json", str(result)]
    command = [sys.executable, "-m", "pytest", *arguments, "--exercise-transport", transport, *options]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=where, timeout=560)
    assert result.exists(), ran.stdout + ran.stderr
    return {test["name"]: test for test in json.loads(result.read_text())["tests"]}, ran.stdout


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_stubs_score_nothing_and_every_test_is_to_do(folder, tmp_path):
    tests, _ = grade(folder, "student.py", tmp_path)
    assert {(test["status"], test["points"]) for test in tests.values()} == {("todo", 0)}


@pytest.mark.parametrize("transport", ["threads", "mpi"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_reference_scores_all_points(folder, transport, tmp_path):
    tests, said = grade(folder, "reference.py", tmp_path, transport)
    assert {test["status"] for test in tests.values()} == {"ok"}, said
    assert all(test["points"] == test["max_points"] for test in tests.values())
    assert f"ranks on {transport}" in said


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_there_are_six_mistakes_at_least(folder):
    assert len(list(folder.glob("mistakes/*.py"))) >= 6


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_a_mistake_loses_what_it_should_and_is_named(mistake, tmp_path):
    loses, diagnosis = (line.partition(": ")[2] for line in mistake.read_text().splitlines()[:2])
    tests, said = grade(mistake.parent.parent, mistake, tmp_path)
    lost = {name for name, test in tests.items() if test["points"] < test["max_points"]}
    assert lost == set(loses.split(", ")), said
    assert {tests[name]["status"] for name in lost} == {"wrong"}
    told = {test["diagnosis"].removeprefix("looks like ").partition(";")[0] for test in tests.values()} - {""}
    assert told == {SENTENCES[key] for key in diagnosis.split(" + ") if key != "none"}


HOSTILE = {  # what stands where naive's solution should be, and what its student is told
    "exits": ("import sys; sys.exit(0)", "called sys.exit(0)"),
    "kills itself": ("import os; os.kill(os.getpid(), 9)", "was killed (SIGKILL)"),
    "loops": ("while True: pass", "did not come back within"),
    "floods": ("while True: print('x' * 100000)", ""),
    "is greedy": ("kept = [np.ones(10**7) for _ in range(10**4)]; return kept[0]", "MemoryError"),
    "asks": ("return x * float(input('how many? '))", "--debug-rank"),
    "stops": ("breakpoint(); return x", "-k test_naive"),
    "equals anything": (
        "return type('Liar', (np.ndarray,), {'__eq__': lambda *_: True, '__ne__': lambda *_: False})(x.shape)",
        "it returned a Liar, expected plain NumPy arrays",
    ),
    "looks for the test": (
        "import inspect; return [f.function for f in inspect.stack() if f.function.startswith('test_')][0]",
        "IndexError",
    ),
    "resets counters": ("comm.counters.clear(); return x", "comm.counters is not offered"),
    "leaves a process": ("import subprocess; subprocess.Popen(['sleep', '987']); return x", "element [0]"),
}


def with_naive(body):
    """Give 04's reference with another body of `naive`."""
    text = (EXERCISES / "04_all_reduce" / "reference.py").read_text()
    before, _, rest = text.partition("    # begin solution\n")
    return f"{before}    {body}\n{rest.partition('    # end solution')[2]}"


@pytest.mark.parametrize("transport", ["threads", "mpi"])
@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_code_ends_cleanly_gains_nothing_and_costs_its_own_tests_alone(how, transport, tmp_path):
    body, told = HOSTILE[how]
    student = tmp_path / "hostile.py"
    student.write_text(with_naive(body))
    tests, said = grade(
        EXERCISES / "04_all_reduce", student, tmp_path, transport, "-k", "naive_gives or scatter"
    )
    test = tests["test_naive_gives_every_rank_the_sum"]
    assert (test["status"], test["points"]) == ("wrong", 0), said
    assert told in test["message"]
    assert test["diagnosis"] in ("", f"looks like {SENTENCES['own part only']}")
    assert tests["test_reduce_scatter_leaves_one_chunk_of_the_sum"]["points"] == 3, said
    sleeping = [pid for pid, _, _ in mpiexec.processes() if "987" in command_of(pid)]
    assert not sleeping


def command_of(pid):
    """Give a process's command line; "" where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_file_that_is_no_program_is_told_with_its_line(tmp_path):
    student = tmp_path / "student.py"
    student.write_text("import numpy as np\n\ndef naive(comm, x:\n    return x\n")
    tests, said = grade(EXERCISES / "04_all_reduce", student, tmp_path)
    assert {test["status"] for test in tests.values()} == {"wrong"}
    assert 'student.py", line 3' in tests["test_naive_gives_every_rank_the_sum"]["message"], said


def test_files_beside_the_students_shadow_nothing_and_the_students_file_is_what_runs(tmp_path):
    folder = tmp_path / "exercises" / "04_all_reduce"
    folder.mkdir(parents=True)
    (tmp_path / "exercises" / "pytest.ini").write_text((EXERCISES / "pytest.ini").read_text())
    (folder / "test_public.py").write_text((EXERCISES / "04_all_reduce" / "test_public.py").read_text())
    text = (EXERCISES / "04_all_reduce" / "reference.py").read_text()
    (folder / "student.py").write_text(
        text.replace("import numpy as np", "import random\nimport numpy as np\nprint('mine')")
    )
    for name in ("numpy", "random", "conftest"):
        (folder / f"{name}.py").write_text("raise SystemExit('a file of the student has run in its place')\n")
    for where, what in ((tmp_path, folder), (folder, "."), (folder, "test_public.py")):
        command = [
            str(Path(sys.executable).parent / "pytest"),
            str(what),
            "-k",
            "naive",
            "--score-json",
            "score.json",
        ]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=where, timeout=200)
        assert json.loads((where / "score.json").read_text())["score"] == 3, ran.stdout + ran.stderr
    (folder / "student.py").write_text("raise ValueError('the marker')\n")
    tests, _ = grade(folder, "student.py", tmp_path, "threads", "-k", "naive")
    assert "the marker" in tests["test_naive_gives_every_rank_the_sum"]["message"]


def test_a_loop_costs_its_limit_once(tmp_path):
    student = tmp_path / "loops.py"
    student.write_text(with_naive("while True: pass"))
    began = time.monotonic()
    tests, said = grade(EXERCISES / "04_all_reduce", student, tmp_path, "mpi", "-k", "naive_gives")
    took, limit = time.monotonic() - began, 5 * 8.0  # stretched at most
    assert tests["test_naive_gives_every_rank_the_sum"]["seconds"] < limit + 2, said
    assert took < limit + 40  # the others are not run
