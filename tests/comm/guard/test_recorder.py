"""The last operations of every rank: what is written down, and how it is told."""

import mmap
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from minidist.comm.errors import CommError
from minidist.comm.guard.__main__ import main
from minidist.comm.guard.recorder import Recorder
from minidist.comm.threads import run_ranks
from minidist.recorded import KEPT, SIZE, first_difference, read_all, stands


@pytest.fixture
def record_to(tmp_path, monkeypatch):
    """Let ranks that are threads keep their operations in a folder."""
    monkeypatch.setenv("MINIDIST_RECORDER", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_an_operation_is_written_down_with_all_that_says_which_it_is(record_to):
    def program(comm):
        comm.recorder.step = 3
        comm.reduce(np.zeros((2, 3), np.float32), "max", root=1)
        half = comm.split(comm.rank % 2, name="half")
        if comm.rank == 0:
            half.isend(np.zeros((2, 3)), 1, tag=7).wait()
        if comm.rank == 2:
            half.recv(np.zeros((3, 2)).T, 0, tag=7)

    run_ranks(program, 4)
    reduce, _, send = read_all(record_to)[0]
    assert (reduce.facts["call"], reduce.sequence, reduce.step, reduce.peer) == ("reduce", 0, 3, None)
    assert (reduce.facts["op"], reduce.facts["root"], reduce.facts["comm"]) == ("max", 1, "world")
    assert (reduce.array, reduce.state) == ("float32 (2, 3)", "done")
    assert reduce.ended >= reduce.began > 0
    assert reduce.facts["line"].startswith(f"{__file__}:")
    assert "comm.reduce(" in reduce.source
    assert (send.called, send.array) == ("isend (dest=1, tag=7) on 'half'", "float64 (2, 3)")
    recv = read_all(record_to)[2][-1]
    assert (recv.called, recv.array) == ("recv (source=0, tag=7) on 'half'", "float64 (2, 3), order not C")


def test_the_last_operations_stay_however_many_there_were(record_to):
    def program(comm):
        early = comm.irecv(np.zeros(1), 1, tag=1) if comm.rank == 0 else None
        for _ in range(2 * KEPT):
            comm.barrier()
        if comm.rank == 1:
            comm.send(np.zeros(1), 0, tag=1)
        if early:
            early.wait()  # its place has long been taken by another

    run_ranks(program, 2)
    kept = read_all(record_to)
    assert [one.sequence for one in kept[0]] == list(range(KEPT + 1, 2 * KEPT))
    assert {one.state for one in kept[0]} == {"done"}
    assert first_difference(kept) == ""


def test_a_sum_in_shared_memory_at_once_is_written_down_too():
    def program(comm):
        comm.recorder = Recorder(mmap.mmap(-1, SIZE), comm.rank, comm.size)
        x = comm.allocate_shared(4)
        for _ in range(3):
            comm.all_reduce(x, out=x)
        return [(one.facts["call"], one.sequence, one.state) for one in comm.recorder.operations()]

    for said in run_ranks(program, 2):
        calls, numbers, states = zip(*said[-3:], strict=True)
        assert (set(calls), set(states)) == ({"all_reduce"}, {"done"})
        assert numbers == (numbers[0], numbers[0] + 1, numbers[0] + 2)
        assert said[-4][0] != "all_reduce"


def test_it_is_told_where_the_ranks_part(record_to, capsys):
    def program(comm):
        comm.barrier()
        if comm.rank == 1:
            raise ZeroDivisionError
        comm.all_reduce(np.zeros(5))

    with pytest.raises(ZeroDivisionError):
        run_ranks(program, 3)
    assert stands(read_all(record_to)[1]).called == "barrier #0 on 'world'"
    assert main([str(record_to)]) == 0
    told = capsys.readouterr().out
    assert "test_recorder.py" in told
    assert re.search(r"Ranks? 1.* not come to all_reduce #1 \(op=sum\) on 'world', which ", told)


def test_the_first_collective_that_differs_is_named(record_to):
    def program(comm):
        comm.barrier()
        comm.broadcast(np.zeros(2), root=0 if comm.rank else 1)

    with pytest.raises(CommError):
        run_ranks(program, 2)
    told = first_difference(read_all(record_to))
    assert told.startswith("From here on the ranks differ:\n  rank 0: broadcast #1 (root=1) on 'world'"), told


def test_a_folder_without_operations_is_refused_in_a_sentence(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "holds no operations" in capsys.readouterr().err
    assert main([]) == 2


def test_a_killed_rank_leaves_its_operations_under_plain_mpiexec(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, numpy as np\nfrom minidist.comm import world\ncomm = world()\n"
        "comm.barrier()\nif comm.rank == 1: os.kill(os.getpid(), 9)\ncomm.all_reduce(np.zeros(3))\n"
    )
    mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    if not os.path.exists(mpiexec):
        pytest.skip("no mpiexec beside this Python")
    environment = {**os.environ, "MINIDIST_RECORDER": str(tmp_path / "kept")}
    subprocess.run(
        [mpiexec, "-n", "2", sys.executable, program], env=environment, capture_output=True, timeout=60
    )
    kept = read_all(tmp_path / "kept")
    assert [one.called for one in kept[1]] == ["barrier #0 on 'world'"]
    assert kept[1][0].state in ("done", "begun")
