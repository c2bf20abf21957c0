"""Ranks that stay for several calls."""

import os
import subprocess
import sys
import time

import pytest

from minidist.launch import Job, mpiexec


@pytest.fixture(params=["threads", "mpi"])
def job(request):
    with Job(3, request.param) as job:
        yield job


def ends(outcomes):
    return [outcome.ended for outcome in outcomes]


def test_calls_follow_each_other_on_any_number_of_the_first_ranks(job):
    for ranks in (1, 2, 3, 2):
        outcomes = job.call(lambda comm: (comm.rank, comm.size), ranks=ranks)
        assert [outcome.value for outcome in outcomes] == [(rank, ranks) for rank in range(ranks)]


def test_messages_of_one_call_are_not_received_by_the_next(job):
    import numpy as np

    def leave_a_message(comm):
        if comm.rank == 0:
            comm.send(np.ones(1), 1)

    def expect_another(comm):
        got = np.zeros(1)
        if comm.rank == 0:
            comm.send(np.full(1, 2.0), 1)
        elif comm.rank == 1:
            comm.recv(got, 0)
        return got[0]

    assert ends(job.call(leave_a_message, ranks=2)) == ["returned"] * 2
    assert job.call(expect_another, ranks=2)[1].value == 2.0


def test_a_job_goes_on_after_a_call_in_which_every_rank_came_back(job):
    def fail(comm):
        raise ValueError("everywhere")

    assert ends(job.call(fail)) == ["raised"] * 3
    assert ends(job.call(lambda comm: None)) == ["returned"] * 3


def test_the_last_lines_of_each_rank_belong_to_their_call(job):
    def talk(comm, word):
        for number in range(30):
            print(word, comm.rank, number)

    job.call(talk, ("first",))
    outcomes = job.call(talk, ("second",))
    assert [outcome.output[-1] for outcome in outcomes] == [f"second {rank} 29" for rank in range(3)]
    assert len(outcomes[0].output) == 20


def test_sys_exit_in_a_rank_is_an_outcome_and_does_not_end_the_job(job):
    outcomes = job.call(lambda comm: sys.exit(7))
    assert ends(outcomes) == ["exited"] * 3
    assert outcomes[0].value == 7
    assert not job.over


def test_a_result_that_cannot_travel_is_a_failure_that_says_so(job):
    import threading

    outcomes = job.call(lambda comm: threading.Lock())
    assert ends(outcomes) == ["raised"] * 3
    assert outcomes[0].message.startswith("TypeError: the function returned lock, which cannot travel")
    assert "return arrays" in outcomes[0].message


def test_an_endless_loop_is_ended_and_the_job_is_over(job):
    def loop(comm):
        while True:
            pass

    pids = list(job._pids)
    outcomes = job.call(loop, timeout=0.5)
    assert ends(outcomes) == ["hung"] * 3
    assert all(outcome.frames[0].function == "loop" for outcome in outcomes)
    assert job.over
    assert not job.directory.exists()
    assert not [pid for pid, _, _ in mpiexec.processes() if pid in pids]
    with pytest.raises(RuntimeError, match="make a new Job"):
        job.call(loop)


def test_children_of_ranks_are_ended_too(job):
    def start_child_and_hang(comm):
        child = subprocess.Popen(["sleep", "60"])
        print(child.pid)
        time.sleep(60)

    outcomes = job.call(start_child_and_hang, ranks=1, timeout=1.0)
    child = int(outcomes[0].output[-1])
    assert child not in [pid for pid, _, _ in mpiexec.processes()]


def test_ranks_have_the_users_temporary_folder(job):
    assert job.call(lambda comm: os.environ.get("TMPDIR"))[0].value == os.environ.get("TMPDIR")


def test_a_job_that_a_rank_starts_is_no_part_of_that_ranks_own_job(monkeypatch):
    for name in ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"):
        monkeypatch.setenv(name, "7")
    with Job(1, "threads") as job:
        (outcome,) = job.call(
            lambda comm: [name for name in os.environ if name.startswith(("PMI_", "MPI_LOCAL"))]
        )
    assert outcome.value == []


def test_a_job_ends_when_its_parent_is_killed():
    program = (
        "import os\n"
        "from minidist.launch import Job\n"
        "job = Job(2, 'threads')\n"
        "print(job._process.pid, job.directory, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    orphan, directory = done.stdout.split()
    until = time.monotonic() + 10
    while any(pid == int(orphan) for pid, _, _ in mpiexec.processes()):
        assert time.monotonic() < until, "the ranks have outlived their parent"
        time.sleep(0.05)
    subprocess.run(["rm", "-r", directory], check=True)


@pytest.mark.parametrize("transport", ["threads", "mpi"])
def test_ranks_that_cannot_start_say_why(transport, monkeypatch, tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('a broken numpy')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(RuntimeError, match="a broken numpy"):
        Job(2, transport)
