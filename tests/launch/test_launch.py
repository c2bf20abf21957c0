"""`minidist.launch` as it is called from a script, a notebook or a test."""

import gc
import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import minidist
from minidist import LaunchTimeout, RankFailed, launch
from minidist.comm import world
from minidist.errors import UserError
from minidist.launch import mpiexec
from minidist.launch.output import OutputOfRanks

on_both = pytest.mark.parametrize("transport", ["threads", "mpi"])


@on_both
def test_results_come_back_by_rank(transport):
    results = launch(
        lambda comm, factor: comm.all_reduce(np.arange(3.0) * factor), 3, 2.0, transport=transport
    )
    assert [result.tolist() for result in results] == [[0.0, 6.0, 12.0]] * 3


@on_both
def test_a_function_without_parameters_finds_its_communicator_with_world(transport):
    assert launch(lambda: (world().rank, world().size), 2, transport=transport) == [(0, 2), (1, 2)]


def test_on_threads_the_callers_variables_can_be_looked_at():
    seen = {}
    launch(lambda comm: seen.update({comm.rank: threading.current_thread()}), 3, transport="threads")
    assert sorted(seen) == [0, 1, 2]


@on_both
def test_a_failure_names_the_rank_its_line_and_where_the_others_were(transport):
    def fn(comm):
        if comm.rank == 1:
            raise ValueError("the student's bug")
        comm.barrier()

    with pytest.raises(RankFailed) as failed:
        launch(fn, 3, transport=transport)
    assert failed.value.rank == 1
    text = str(failed.value)
    assert text.startswith(f"rank 1 of 3 on {transport}: ValueError: the student's bug\nTraceback")
    assert f'File "{__file__}"' in text
    assert text.count("Traceback") == 1
    assert "rank 0 was stopped at" in text
    assert "comm.barrier()" in text


@on_both
def test_the_same_failure_on_all_ranks_is_told_once(transport):
    def fn(comm):
        raise KeyError("everywhere")

    with pytest.raises(RankFailed) as failed:
        launch(fn, 3, transport=transport)
    assert str(failed.value).count("Traceback") == 1
    assert str(failed.value).endswith("(the same on ranks 1, 2)")


def test_ranks_that_fail_alike_in_pairs_are_told_in_pairs():
    def fn(comm):
        raise KeyError(f"row {comm.rank // 2}")

    with pytest.raises(RankFailed) as failed:
        launch(fn, 4, transport="threads")
    rows = "(the same on rank 1)\nrank 2: KeyError: 'row 1'\n(the same on rank 3)"
    assert str(failed.value).endswith(rows)


@on_both
def test_at_the_limit_each_ranks_line_is_shown(transport):
    def fn(comm):
        if comm.rank == 0:
            time.sleep(30)
        comm.barrier()

    with pytest.raises(LaunchTimeout) as late:
        launch(fn, 2, transport=transport, timeout=1.0)
    lines = str(late.value).splitlines()
    assert lines[0] == f"ranks 0, 1 of 2 on {transport} did not come back within 1 s:"
    assert lines[1].startswith(f"rank 0 stands at {__file__}:")
    assert lines[1].endswith("time.sleep(30)")
    assert lines[2].endswith("comm.barrier()")


@on_both
def test_what_ranks_print_is_shown_by_whole_lines_with_the_rank(transport, capsys):
    def fn(comm):
        print("hello", "from", comm.rank)
        print("no end of line", end="")

    launch(fn, 2, transport=transport)
    lines = sorted(capsys.readouterr().out.splitlines())
    ends = [f"[rank {rank}] no end of line" for rank in range(2)]
    assert lines == sorted(["[rank 0] hello from 0", "[rank 1] hello from 1", *ends])


def test_each_rank_has_one_thread_of_arithmetic_unless_asked_otherwise(monkeypatch):
    def threads():
        return os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]

    for name in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR"):
        monkeypatch.delenv(f"{name}_NUM_THREADS", raising=False)
    assert launch(lambda comm: threads(), 1) == [("1", "1")]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert launch(lambda comm: threads(), 1) == [("2", "2")]


def test_a_wrong_number_of_ranks_or_transport_is_refused():
    with pytest.raises(UserError, match="at least 1, not 0"):
        launch(print, 0)
    with pytest.raises(UserError, match="not 'tcp'"):
        launch(print, 2, transport="tcp")


def test_without_mpiexec_the_error_says_how_to_get_it_and_what_works_without(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"pip install mpich mpi4py.*transport=\"threads\""):
        launch(print, 2)


def test_minidist_is_imported_fast_and_without_mpi():
    code = "import sys, minidist; sys.exit('mpi4py' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert callable(minidist.launch)


def test_functions_and_classes_of_a_script_travel_by_value(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import minidist\n"
        "class Box:\n"
        "    def __init__(self, rank): self.rank = rank\n"
        "def fn(comm): return Box(comm.rank)\n"
        "print([box.rank for box in minidist.launch(fn, 2)])\n"
    )
    assert subprocess.run([sys.executable, script], capture_output=True, text=True).stdout == "[0, 1]\n"


def test_a_killed_rank_is_told_with_its_last_operations_and_nothing_is_left_of_it(capsys):
    def fn(comm):
        if comm.rank == 0:
            print(os.getpid(), os.environ["MINIDIST_STACKS"])
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), 9)
        comm.barrier()

    with pytest.raises(RankFailed, match=r"rank 1 of 2 on mpi: was killed \(SIGKILL\)") as failed:
        launch(fn, 2)
    assert failed.value.rank == 1
    assert "the last operations of rank 1" in str(failed.value)
    survivor, in_directory = capsys.readouterr().out.split()[-2:]
    assert int(survivor) not in [pid for pid, _, _ in mpiexec.processes()]
    assert not Path(in_directory).parent.exists()


def test_the_output_of_ranks_that_were_threads_is_freed_in_silence_when_stdout_has_been_closed():
    beside = io.StringIO()
    output = OutputOfRanks(lambda rank, line: None, beside)
    beside.close()
    del output  # Python closes it; a complaint here is an error, as every warning is
    gc.collect()
