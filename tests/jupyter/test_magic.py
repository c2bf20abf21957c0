"""The magics, in a shell as a notebook's kernel has it."""

import os
import signal
import threading
import time

import numpy as np
import pytest

interactiveshell = pytest.importorskip("IPython.core.interactiveshell")


@pytest.fixture
def shell(capsys):
    """Give a function that runs a cell and returns what it shows."""
    made = interactiveshell.InteractiveShell()
    made.run_line_magic("load_ext", "minidist.jupyter")

    def run(cell: str) -> str:
        made.run_cell(cell, store_history=False)
        out, err = capsys.readouterr()
        return out + err

    run.names = made.user_ns
    return run


def assert_gone(pid):
    """Wait until a process that was killed is not even a zombie any more."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still there")


def test_ranks_get_what_is_named_and_give_back_what_is_asked_for(shell):
    shell("import numpy as np\ndef twice(x): return 2 * x\ndata = np.arange(3.0)")
    said = shell("%%mpi -n 3 --with twice,data --return mine\nmine = twice(data) + comm.rank\ncomm.rank")
    assert "3 fresh Pythons start" in said
    assert sorted(line for line in said.splitlines() if line.startswith("[rank")) == [
        "[rank 0] 0",
        "[rank 1] 1",
        "[rank 2] 2",
    ]
    np.testing.assert_array_equal(shell.names["mine"], [np.arange(3) * 2 + rank for rank in range(3)])


def test_an_error_shows_the_cells_own_lines_and_where_the_others_stood(shell):
    said = shell("%%mpi -n 2\nif comm.rank == 1:\n    raise ValueError('a bug')\ncomm.barrier()")
    assert "rank 1 of 2 on mpi: ValueError: a bug" in said
    assert "line 3, in <module>\n    raise ValueError('a bug')" in said
    assert ":4 in <module>: comm.barrier()" in said
    assert "minidist/jupyter" not in said  # who ran the cell tells nothing


def test_a_deadlock_is_explained_at_once(shell):
    began = time.monotonic()
    said = shell("%%mpi -n 2\nimport numpy as np\ncomm.recv(np.zeros(1), source=1 - comm.rank)")
    assert "deadlock" in said
    assert ":3   comm.recv(" in said
    assert time.monotonic() - began < 50  # not the limit, 60


def test_at_the_limit_each_rank_says_where_it_stands_and_none_is_left(shell):
    said = shell("%%mpi -n 2 --timeout 0.5\nimport os\nprint(os.getpid())\nwhile True:\n    pass")
    assert "did not come back within 0.5 s" in said
    assert "--timeout SECONDS" in said
    for rank in (0, 1):
        assert f"rank {rank} stands at " in said
        assert_gone(int(said.partition(f"[rank {rank}] ")[2].split()[0]))


def test_interrupt_ends_the_ranks_and_not_the_kernel(shell):
    threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    said = shell("%%mpi -n 2\nimport os\nprint(os.getpid(), flush=True)\nwhile True:\n    pass")
    assert "KeyboardInterrupt" in said
    for line in said.splitlines():
        if line.startswith("[rank"):
            assert_gone(int(line.split()[-1]))
    shell("still = 'here'")
    assert shell.names["still"] == "here"


def test_a_name_of_the_notebook_that_ranks_lack_is_explained(shell):
    shell("import math\ndef f(): pass")
    threads = "%%mpi -n 2 --transport threads\n"
    assert "add --with f to the first line" in shell(threads + "f()")
    assert "import it in this cell, too" in shell(threads + "math.pi")
    assert "the notebook has no g" in shell("%%mpi -n 2 --with g\ng()")
    said = shell(threads + "nowhere")
    assert "name 'nowhere' is not defined" in said
    assert "--with" not in said


def test_ranks_that_are_threads_keep_their_variables(shell):
    shell("%%mpi -n 2 --transport threads\nx = comm.rank")
    said = shell("%%mpi -n 2 --transport threads --return y\nx += 10\ny = x")
    assert "[rank" not in said
    assert shell.names["y"] == [10, 11]
    assert shell.names["ranks"][1].x == 11


def test_threads_that_run_for_ever_are_asked_to_stop(shell):
    before = set(threading.enumerate())  # those of earlier tests may end meanwhile
    said = shell("%%mpi -n 2 --transport threads --timeout 0.2\nwhile True:\n    pass")
    assert "did not come back" in said
    until = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < until:
        time.sleep(0.01)
    assert set(threading.enumerate()) - before == set()


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("%%mpi\n1", "the following arguments are required: -n"),
        ("%%mpi -n 0\n1", "-n must be at least 1, not 0"),
        ("%%mpi -n 2 --timeout -1\n1", "must be more than 0, not -1"),
        ("%%mpi -n 2 --with a.b\n1", "'a.b' is no variable's name"),
        ("%%mpi -n 2 --return z --transport threads\n1", "--return z: no rank has a variable of that name"),
        ("%%mpi -n 2\n%ls", "ranks run plain Python, and '%ls' is for the notebook"),
        ("%%mpi -n 2\nx = (", "SyntaxError: '(' was never closed"),
        ("%mpi -n 2", "begin the cell with %%mpi"),
        ("%mpi -n 2 no_such.py", "there is no script 'no_such.py' here"),
    ],
)
def test_a_wrong_cell_gets_one_sentence_and_starts_no_ranks(shell, cell, sentence):
    said = shell(cell)
    assert sentence in said
    assert "fresh Pythons" not in said
    assert "minidist/jupyter" not in said


def test_a_program_runs_on_ranks(shell, tmp_path):
    script = tmp_path / "program.py"
    script.write_text("from minidist.comm import world\nimport sys\nprint(world().rank, sys.argv[1:])\n")
    said = shell(f"%mpi -n 2 {script} --epochs 3")
    assert "0 ['--epochs', '3']" in said
    assert "1 ['--epochs', '3']" in said
