"""Programs as users write and start them: plain mpiexec, and a rank that leaves."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minidist import leftovers
from minidist.errors import UserError
from minidist.launch import mpiexec

try:
    MPIEXEC = mpiexec.find_mpiexec()
except UserError as without:
    pytest.skip(str(without), allow_module_level=True)

START = """
import glob, os, signal, sys, time
import numpy as np
from minidist.comm import world
from minidist.errors import UserError
comm = world()
"""


OPEN_MPI = "Open MPI" in subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True).stdout


def without_mpiexecs_words(stderr):
    """Drop what Open MPI's mpiexec says of an end, between lines of dashes, and the zero bytes that it adds."""
    said, rule = [], "-" * 74
    for i, block in enumerate(stderr.replace("\0", "").split(rule)):
        if i % 2 == 0:
            said += [line for line in block.splitlines() if line.strip()]
    return said


@pytest.fixture
def run(tmp_path):
    """Run a program on n ranks; return (exit code, stdout, stderr without MPI's own words)."""

    def run(body, n=3):
        script = tmp_path / "program.py"
        script.write_text(START + body)
        done = subprocess.run(
            [MPIEXEC, "-n", str(n), sys.executable, str(script)],
            env=mpiexec.environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=30,  # nothing here may hang; the slowest needs two seconds
            stdin=subprocess.DEVNULL,
        )
        return done.returncode, done.stdout, without_mpiexecs_words(done.stderr)

    return run


def test_the_traceback_of_the_rank_that_failed_is_printed_once_and_first(run):
    code, _, said = run("""
if comm.rank == 2:
    raise ValueError("the student's bug")
comm.all_reduce(np.ones(3))
""")
    assert code == 1
    assert said[0] == "[rank 2] Traceback (most recent call last):"
    assert said[-1] == "[rank 2] ValueError: the student's bug"
    assert all(line.startswith("[rank 2] ") for line in said)


def test_an_exception_ends_ranks_that_compute(run):
    code, _, said = run("""
if comm.rank == 2:
    raise ValueError("the student's bug")
while True:
    pass
""")
    assert code == 1
    assert said[-1] == "[rank 2] ValueError: the student's bug"


def test_ranks_that_fail_alike_print_one_traceback(run):
    code, _, said = run("raise ValueError('the same everywhere')")
    assert code == 1
    assert said[-2:] == ["[rank 0] ValueError: the same everywhere", "[rank 0] (the same on ranks 1, 2)"]
    assert sum("Traceback" in line for line in said) == 1


def test_ranks_that_fail_differently_get_a_line_each_after_the_lowest(run):
    code, _, said = run("""
if comm.rank:
    raise ValueError(f"bug {comm.rank}")
comm.barrier()
""")
    assert code == 1
    assert said[-2:] == ["[rank 1] ValueError: bug 1", "[rank 2] raised ValueError: bug 2"]
    assert sum("Traceback" in line for line in said) == 1


def test_a_user_error_is_one_sentence_and_exit_code_2(run):
    assert run("raise UserError('--batch must be at least 1, not 0')") == (
        2,
        "",
        ["--batch must be at least 1, not 0"],
    )


def test_sys_exit_with_a_code_ends_all_ranks_with_that_code(run):
    code, _, said = run("""
if comm.rank == 2:
    sys.exit(3)
while True: pass
""")
    assert (code, said) == (3, ["[rank 2] called sys.exit(3): ending the job"])


def test_a_sys_exit_that_is_caught_is_no_exit(run):
    code, out, said = run("""
try:
    sys.exit(3)
except SystemExit:
    pass
comm.barrier()
print("here")
""")
    assert (code, out.split(), said) == (0, ["here"] * 3, [])


@pytest.mark.parametrize("leave", ["sys.exit(0)", "pass"])
def test_whoever_waits_for_a_rank_that_has_finished_ends_the_job_and_says_so(run, leave):
    code, _, said = run(f"""
if comm.rank == 2:
    {leave}
else:
    comm.all_reduce(np.ones(3))
""")
    assert code == 1
    assert said[0].startswith("[rank 0] waits at ")
    assert "program.py:11 in all_reduce" in said[0]
    assert said[0].endswith("but rank 2 has already finished the program")


def test_a_receive_from_any_rank_ends_the_job_when_all_others_have_finished(run):
    code, _, said = run("""
if comm.rank == 0:
    comm.recv(np.empty(3), -1)
""")
    assert code == 1
    assert said[0].endswith("but ranks 1, 2 have already finished the program")


def test_messages_of_ranks_that_have_left_are_still_received(run):
    code, out, said = run("""
if comm.rank == 0:
    time.sleep(1.0)
    for source in (1, 2):
        got = np.empty(100_000 if source == 2 else 500)
        comm.recv(got, source)
        print(got[-1])
else:
    request = comm.isend(np.arange(100_000.0 if comm.rank == 2 else 500.0), 0)
""")
    assert (code, out.split(), said) == (0, ["499.0", "99999.0"], [])


def test_a_slow_rank_is_waited_for(run):
    code, out, said = run("""
if comm.rank == 1:
    time.sleep(1.0)
print(comm.all_reduce(np.array(1)))
if comm.rank == 2:
    time.sleep(0.8)
""")
    assert (code, out.split(), said) == (0, ["3"] * 3, [])


def test_a_rank_that_is_killed_ends_the_job_and_leaves_no_file(run):
    code, out, _ = run("""
if comm.rank == 2:
    print(*[line.split()[5] for line in open("/proc/self/maps") if "/dev/shm/mpich_shm_" in line])
    helper = f"/proc/{os.getppid()}/fd/"
    print(*[file for file in map(os.readlink, glob.glob(helper + "*")) if "hydra_hwloc_xmlfile" in file])
    os.kill(os.getpid(), signal.SIGKILL)
comm.barrier()
""")
    assert code != 0
    paths = out.replace(" (deleted)", "").split()
    assert not [path for path in paths if Path(path).exists()]


@pytest.mark.parametrize(
    ("leave", "code", "words"),
    [
        ("os._exit(5)", 5, "called os._exit(5) at program.py:9: ending the job"),
        ("os._exit(0)", 1, "called os._exit(0) at program.py:9: ending the job"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, "was ended by SIGTERM"),
    ],
)
def test_os_exit_and_sigterm_end_all_ranks_in_one_line(run, leave, code, words):
    got, _, said = run(f"""
if comm.rank == 2:
    {leave}
comm.barrier()
""")
    assert got == code
    assert [line.replace(line[line.find("/") : line.rfind("/") + 1], "") for line in said] == [
        f"[rank 2] {words}"
    ]


def test_only_old_remains_of_this_user_are_swept_away(tmp_path, monkeypatch):
    left, other = tmp_path / "mpich_shm_1", tmp_path / "a file of the user"
    monkeypatch.setattr(leftovers, "REMAINS", (f"{tmp_path}/mpich_shm_*", f"{tmp_path}/not/there/*"))
    for age, stays in ((3600.0, True), (-1.0, False)):
        left.touch()
        other.touch()
        monkeypatch.setattr(leftovers, "OLD", age)
        leftovers.sweep()
        assert (left.exists(), other.exists()) == (stays, True)


def test_an_exception_ends_the_job_while_another_thread_of_the_rank_goes_on(run):
    code, _, said = run("""
import threading
threading.Thread(target=time.sleep, args=(25,)).start()
if comm.rank == 1:
    raise ValueError("and a thread that is no daemon")
comm.barrier()
""")
    assert code == 1
    assert said[-1] == "[rank 1] ValueError: and a thread that is no daemon"


def test_a_forked_child_of_a_rank_is_no_rank(run):
    code, out, said = run(
        """
child = os.fork()
if child == 0:
    try:
        raise ValueError("only the child")
    except ValueError:
        sys.excepthook(*sys.exc_info())
        os._exit(0)
os.waitpid(child, 0)
comm.barrier()
print("here")
""",
        n=2,
    )
    assert (code, out.split()) == (0, ["here"] * 2)
    assert "ValueError: only the child" in said


def start_three(script):
    """Run a script on three ranks, just as it stands."""
    return subprocess.run(
        [MPIEXEC, "-n", "3", sys.executable, str(script)],
        env=mpiexec.environment(script.parent),
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("leave", "words"),
    [
        ("raise ImportError('no such thing')", "[rank 1] ImportError: no such thing"),
        ("sys.exit(0)", "rank 1 has already finished the program"),
        ("sys.exit(3)", "rank 1 has already finished the program"),
        ("raise SystemExit(3)", "rank 1 has already finished the program"),
        ("os._exit(0)", "[rank 0] rank 1 ended before MPI was up"),
    ],
)
def test_a_rank_that_leaves_before_mpi_is_up_ends_the_job(tmp_path, leave, words):
    if OPEN_MPI and "xit(" in leave:
        pytest.skip(
            "Open MPI's mpiexec ends the job itself, or cannot be told; README says that MPICH is the default"
        )
    script = tmp_path / "early.py"
    script.write_text(
        "import os, sys, minidist\n"
        "if os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK')) == '1':\n"
        f"    {leave}\n"
        "from minidist.comm import world\n"
        "world().barrier()\n"
    )
    done = start_three(script)
    assert done.returncode != 0
    assert done.stderr.count(words) == 1


@pytest.mark.parametrize("leave", ["sys.exit(3)", "raise KeyboardInterrupt"])
def test_a_rank_that_leaves_while_mpi_starts_ends_the_job(tmp_path, leave):
    script = tmp_path / "amid.py"
    script.write_text(
        "import os, sys\n"
        "from minidist.comm import leaving, world\n"
        "def interrupted(everyone):\n"
        f"    {leave}\n"
        "if os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK')) == '1':\n"
        "    leaving.install = interrupted  # MPI has just started\n"
        "world().barrier()\n"
    )
    done = start_three(script)
    assert done.returncode != 0
    assert done.stderr.count("[rank 1] left while MPI was starting") == 1


def test_ranks_that_never_need_mpi_end_normally(tmp_path):
    command = [MPIEXEC, "-n", "3", sys.executable, "-c", "import minidist; print('done')"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout.count("done"), done.stderr) == (0, 3, "")


@pytest.mark.parametrize("whom", ["one rank", "the command"])
def test_sigterm_lets_a_training_end_its_step_on_all_ranks_and_save(tmp_path, whom):
    """The ranks are in different steps: they train on their own, and the last one is a server."""
    keep = [] if whom == "one rank" else ["--checkpoint", str(tmp_path / "run"), "--every", "100000"]
    program = ["-m", "minidist.train", "--mode", "parameter-server", "--servers", "1", "--slack", "2", *keep]
    launcher = [MPIEXEC, "-n", "3", sys.executable]
    if whom == "the command":
        launcher = [sys.executable, "-m", "minidist.launch", "-n", "3"]
    started = subprocess.Popen(
        [*launcher, *program, "--epochs", "1000"],
        env=dict(os.environ) if whom == "the command" else mpiexec.environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while "communication" not in started.stdout.readline():
        assert started.poll() is None
    victim = started.pid
    if whom == "one rank":
        parents = {pid: parent for pid, parent, _ in mpiexec.processes()}
        victim = max(pid for pid, parent in parents.items() if started.pid in (parent, parents.get(parent)))
    os.kill(victim, signal.SIGTERM)
    _, err = started.communicate(timeout=30)
    (said,) = without_mpiexecs_words(err)
    assert started.returncode == 143
    if keep:
        assert (
            f"by SIGTERM; saved in {tmp_path}/run; go on with: mpiexec -n 3 python -m minidist.train" in said
        )
        assert len(list((tmp_path / "run").glob("step-*"))) == 1
    else:
        assert "by SIGTERM; nothing was saved: give --checkpoint DIR" in said


def press_ctrl_c(command, environment, when):
    """Run a command in a terminal, press Ctrl-C once it has printed `when`; return (exit code, all it printed).

    Who has not ended after 30 s is killed: exit code -9.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, environment)
    printed, pressed, until = b"", False, time.monotonic() + 30
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                printed += os.read(terminal, 65536)
            except OSError:  # the terminal's other side is closed
                break
        if not pressed and when in printed:
            os.write(terminal, b"\x03")
            pressed = True
    os.close(terminal)
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1]), printed.decode(errors="replace")


# Python warns of a fork beside threads; here exec follows at once.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("through", ["mpiexec", "launch"])
def test_ctrl_c_ends_all_ranks_in_one_line_with_exit_code_130(tmp_path, through):
    script = tmp_path / "program.py"
    script.write_text(
        START + "comm.barrier()\nprint('ready', comm.rank)\nif comm.rank: comm.barrier()\ntime.sleep(25)\n"
    )
    launcher = [MPIEXEC] if through == "mpiexec" else [sys.executable, "-m", "minidist.launch"]
    program = [sys.executable, str(script)] if through == "mpiexec" else [str(script)]
    environment = mpiexec.environment(tmp_path) if through == "mpiexec" else dict(os.environ)
    code, printed = press_ctrl_c([*launcher, "-n", "3", *program], environment, b"ready 0")
    assert "Traceback" not in printed
    if (
        OPEN_MPI and through == "mpiexec"
    ):  # ends the ranks by itself, with a code of its own and without a word
        assert code > 0
    else:
        assert (code, printed.count("interrupted")) == (130, 1)
