"""Which world a process is in, and what is said when the ranks did not find each other."""

import os
import subprocess
import sys

import pytest

from minidist.comm.world import LauncherFacts, launcher_facts, mpich_under_open_mpi, world_problem


@pytest.mark.parametrize(
    ("environ", "facts"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, None),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, LauncherFacts("mpiexec", 2, 4)),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, LauncherFacts("mpiexec", 0, 1)),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "1"},
            LauncherFacts("mpiexec", 1, 3),
        ),
        ({"PMIX_RANK": "5"}, LauncherFacts("mpiexec", 5, None)),
        ({"MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}, LauncherFacts("mpiexec", 1, 2)),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}, LauncherFacts("srun", 3, 4)),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "PMIX_RANK": "3"}, LauncherFacts("srun", 3, 4)),
        ({"SLURM_STEP_NUM_TASKS": "4", "PMI_RANK": "1", "PMI_SIZE": "4"}, LauncherFacts("srun", 1, 4)),
    ],
)
def test_the_environment_says_who_started_this_process(environ, facts):
    assert launcher_facts(environ) == facts


def test_ranks_that_did_not_find_each_other_are_told_what_to_do():
    foreign = world_problem(LauncherFacts("mpiexec", 0, 4), 1, "MPICH Version: 5.0.2", "/venv/bin/mpiexec")
    assert "4 processes, but each is rank 0 of 1" in foreign
    assert "another MPI than mpi4py's (MPICH Version: 5.0.2)" in foreign
    assert "/venv/bin/mpiexec -n 4 python" in foreign
    assert "python -m minidist.doctor" in foreign
    assert "the mpiexec of Open MPI" in world_problem(LauncherFacts("mpiexec", 0, 2), 1, "Open MPI", None)
    assert "srun --mpi=pmi2 -n 4" in world_problem(LauncherFacts("srun", 0, 4), 1, "MPICH", None)


@pytest.mark.parametrize(
    ("facts", "size"), [(("mpiexec", 0, 4), 4), (("mpiexec", 0, 1), 1), (("srun", 0, None), 1)]
)
def test_ranks_that_found_each_other_are_left_alone(facts, size):
    assert world_problem(LauncherFacts(*facts), size, "MPICH", None) is None


@pytest.mark.parametrize(
    ("environ", "library", "answer"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "0"}, "MPICH Version: 5.0.2", True),
        ({"OMPI_COMM_WORLD_SIZE": "3", "PMIX_RANK": "0"}, "Open MPI v5.0.11", False),
        ({"OMPI_COMM_WORLD_SIZE": "3", "PMI_RANK": "0"}, "MPICH Version: 5.0.2", False),  # a job within a job
        ({"OMPI_COMM_WORLD_SIZE": "3", "MPIR_CVAR_PMI_VERSION": "x"}, "MPICH Version: 5.0.2", False),
        ({"PMI_RANK": "0", "PMI_SIZE": "3"}, "MPICH Version: 5.0.2", False),
        ({}, "MPICH Version: 5.0.2", False),
    ],
)
def test_a_start_of_mpi_that_would_end_the_process_is_foreseen(environ, library, answer):
    assert mpich_under_open_mpi(environ, library) is answer


def run(code, **environ):
    """Run a small program in a process of its own."""
    launchers = ("PMI_", "PMIX_", "OMPI_", "MPI_", "SLURM_", "HYDRA_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    return subprocess.run(
        [sys.executable, "-c", code], env={**clean, **environ}, capture_output=True, text=True, timeout=60
    )


HOW_MPI_IS_CALLED = "from minidist.comm.world import load_mpi; print(load_mpi().Get_library_version())"
HIDE_MPI4PY = "import sys; sys.modules['mpi4py'] = None; "


def test_a_world_of_one_needs_no_mpi4py():
    code = (
        HIDE_MPI4PY + "from minidist.comm import world; comm = world(); "
        "print(comm.rank, comm.size, comm.all_reduce(3.0), comm is world())"
    )
    assert run(code).stdout == "0 1 3.0 True\n"


def test_importing_comm_does_not_import_mpi4py():
    assert run("import sys, minidist.comm; print('mpi4py' in sys.modules)").stdout == "False\n"


def test_ranks_of_open_mpis_mpiexec_are_refused_before_mpich_ends_them():
    code = "from minidist.comm import world; world()"
    if "MPICH" not in run(HOW_MPI_IS_CALLED).stdout:
        pytest.skip("this is about MPICH")
    told = run(code, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="3", PMIX_RANK="0")
    assert "mpiexec started 3 processes, but each is rank 0 of 1" in told.stderr
    assert "Abort" not in told.stderr
    silent = run(code, OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="3", PMIX_RANK="1")
    assert (silent.returncode, silent.stdout, silent.stderr) == (2, "", "")


def test_an_mpiexec_without_mpi4py_is_refused_with_the_line_to_type():
    code = HIDE_MPI4PY + "from minidist.comm import world; world()"
    told = run(code, PMI_RANK="0", PMI_SIZE="4").stderr
    assert "mpiexec started this process, but MPI cannot be used" in told
    assert "python -m pip install mpich mpi4py" in told
    silent = run(code, PMI_RANK="1", PMI_SIZE="4")
    assert (silent.returncode, silent.stdout, silent.stderr) == (2, "", "")
