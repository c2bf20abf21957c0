"""What a program leaves open is told when all ranks have ended, once."""

import json
import subprocess
import sys

import numpy as np
import pytest

from minidist.comm import guard
from minidist.comm.errors import CommError
from minidist.comm.guard import report
from minidist.comm.guard.requests import Requests
from minidist.comm.guard.unfinished import Unfinished
from minidist.comm.threads import run_ranks
from minidist.launch import Job, mpiexec

PROGRAM = """
import numpy as np
from minidist.comm import guard, world
comm = world()
guard.watch(comm)
if comm.rank == 1:
    comm.isend(np.zeros(8), 0, tag=5).wait()
comm.barrier()
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Give a function that reads the reports."""
    path = tmp_path / "report"
    monkeypatch.setenv("MINIDIST_GUARD_REPORT", str(path))
    return lambda: [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def watched(program, ranks=2):
    """Run a program on threads with its messages watched."""

    def one_rank(comm):
        requests = Requests()
        comm.listeners += [requests, Unfinished(requests)]
        program(comm)

    run_ranks(one_rank, ranks)


def sends_too_much(comm):
    x, other = np.zeros((2, 4)), (comm.rank + 1) % comm.size
    for tag in (5, 5, 6):
        comm.isend(x, other, tag).wait()
    comm.recv(x, -1, 5)
    if comm.rank != 1:
        comm.recv(x, -1, 5)
    comm.recv(x, (comm.rank - 1) % comm.size, 6)
    comm.sendrecv(x, other, x, -1)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_message_that_nobody_received_is_told_with_the_line_that_sent_it(ranks, told, capsys, monkeypatch):
    watched(sends_too_much, ranks)
    (report,) = told()
    assert (report["kind"], report["ranks"]) == ("never received", [0])
    line = f"{__file__}:{sends_too_much.__code__.co_firstlineno + 3}"
    assert report["lines"] == {"0": line}
    said = capsys.readouterr().err
    assert said.startswith("minidist guard: 1 message was sent and never received:\n")
    assert "rank 0 sent float64 (2, 4) to rank 1 with tag 5   test_unfinished.py" in said
    monkeypatch.setenv("MINIDIST_GUARD_WITHOUT", "never received")
    watched(sends_too_much, ranks)
    assert len(told()) == 1


def forgets_to_wait(comm):
    x, y = np.zeros(4), np.zeros(4)
    for _ in range(3):
        comm.isend(x, 1 - comm.rank)
        comm.recv(y, 1 - comm.rank)


def test_a_request_that_nobody_waited_for_is_told_with_the_line_that_posted_it(told, capsys, monkeypatch):
    watched(forgets_to_wait)
    (report,) = told()
    line = f"{__file__}:{forgets_to_wait.__code__.co_firstlineno + 3}"
    assert (report["kind"], report["lines"]) == ("never waited", {"0": line, "1": line})
    assert "rank 1: isend to rank 0, 3 times   test_unfinished.py" in capsys.readouterr().err
    monkeypatch.setenv("MINIDIST_GUARD_WITHOUT", "never waited")
    watched(forgets_to_wait)
    assert len(told()) == 1


def test_one_mistake_is_told_once(told):
    def program(comm):
        if comm.rank == 0:
            comm.isend(np.zeros(4), 1)

    watched(program)
    assert [report["kind"] for report in told()] == ["never received"]


def test_what_is_complete_is_not_told(told, capsys):
    def program(comm):
        x, y, rows = np.zeros(4), np.zeros(4), comm.split(comm.rank % 2, name="row")
        requests = [comm.isend(x, rank) for rank in range(comm.size)]
        for _ in range(comm.size):
            comm.recv(y, -1)
        rows.sendrecv(y, (rows.rank + 1) % rows.size, y, -1, tag=3)
        for request in requests:
            while not request.test():
                pass

    watched(program, 4)
    assert told() == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("transport", ["threads", "mpi"])
def test_a_job_tells_it_at_the_end_of_each_call(transport, told):
    def program(comm, mistakes):
        guard.watch(comm)
        for _ in range(mistakes):
            comm.isend(1.0, 1 - comm.rank, tag=7).wait()

    with Job(2, transport) as job:
        for mistakes in (1, 0, 2):
            outcomes = job.call(program, (mistakes,))
            assert [outcome.ended for outcome in outcomes] == ["returned"] * 2
    assert [(report["kind"], report["ranks"]) for report in told()] == [("never received", [0, 1])] * 2


def test_under_mpiexec_it_is_told_when_all_ranks_have_finished(told, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [mpiexec.find_mpiexec(), "-n", "2", sys.executable, str(program)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, env=mpiexec.environment(tmp_path), check=False
    )
    assert done.returncode == 0, done.stderr
    (report,) = told()
    assert (report["kind"], report["lines"]) == ("never received", {"1": f"{program}:7"})
    assert done.stderr.count("never received") == 1


def test_a_fault_of_all_ranks_is_noted_once_and_one_of_another_line_too(told):
    for rank, line in ((1, "a.py:3"), (0, "a.py:3"), (2, "a.py:9"), (3, "a.py:9")):
        report.note_first(CommError("twice", "waited twice", (rank,), {rank: line}))
    report.note_first(CommError("temporary", "temporary", (0,), {0: "a.py:3"}))
    noted = [(fault["kind"], fault["ranks"]) for fault in told()]
    assert noted == [("waited twice", [1]), ("waited twice", [2]), ("temporary", [0])]
