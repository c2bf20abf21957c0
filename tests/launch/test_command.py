"""`python -m minidist.launch`, as typed."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

START = "import os, sys, time\nfrom minidist.comm import world\ncomm = world()\n"


@pytest.fixture
def run(tmp_path):
    """Run a program under the command; return (exit code, lines of stdout, lines of stderr)."""

    def run(body, *options, n=3):
        (tmp_path / "program.py").write_text(START + body)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "minidist.launch",
                "-n",
                str(n),
                *options,
                str(tmp_path / "program.py"),
                "an argument",
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()

    return run


@pytest.mark.parametrize("transport", ["mpi", "threads"])
def test_lines_are_whole_and_marked_except_rank_0s(run, transport):
    body = "for part in 'one', 'two': print(part, end=' ', flush=transport == 'mpi')\nprint(comm.rank, sys.argv[1])"
    code, out, err = run(f"transport = {transport!r}\n{body}", "--transport", transport)
    assert (code, err) == (0, [])
    assert sorted(out) == [
        "[rank 1] one two 1 an argument",
        "[rank 2] one two 2 an argument",
        "one two 0 an argument",
    ]


def test_a_module_is_run_after_m():
    command = [sys.executable, "-m", "minidist.launch", "-n", "1", "-m", "this"]
    assert "The Zen of Python" in subprocess.run(command, capture_output=True, text=True).stdout


@pytest.mark.parametrize("transport", ["mpi", "threads"])
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("if comm.rank == 1: sys.exit(3)\ncomm.barrier()", 3, r"called sys\.exit\(3\)"),
        ("if comm.rank == 1: raise ValueError('a bug')\ncomm.barrier()", 1, "ValueError: a bug"),
        ("from minidist.errors import UserError\nraise UserError('one sentence')", 2, "one sentence"),
    ],
)
def test_the_exit_code_of_the_failed_rank_is_passed_on(run, transport, body, code, said):
    got, _, err = run(body, "--transport", transport)
    assert got == code
    assert len(re.findall(said, "\n".join(err))) >= 1
    assert sum("Traceback" in line for line in err) == (code == 1)
    assert not [line for line in err if "MPI_Abort" in line]


def test_a_killed_rank_is_named_with_its_last_operations(run):
    code, _, err = run(
        "comm.barrier()\nif comm.rank == 1: time.sleep(0.2); os.kill(os.getpid(), 9)\ncomm.barrier()"
    )
    first, second, *rows, last = err
    assert (code, first) == (137, "minidist.launch: rank 1 was killed (SIGKILL)")
    assert second.startswith("the last operations of rank 1, and where the others stood")
    found = [re.sub(r" +-\d\.\d+ s +", "  ", row).split("  ")[1:] for row in rows]
    assert [re.sub(" +", " ", " ".join(row)) for row in found] == [
        "rank 1 done barrier #0 on 'world' program.py:4 comm.barrier()",
        "ranks 0, 2 waits barrier #1 on 'world' program.py:6 comm.barrier()",
    ]
    assert last == "Rank 1 has not come to barrier #1 on 'world', which ranks 0, 2 have called."


def test_a_rank_that_goes_without_a_word_is_no_success(run):
    code, _, err = run("import ctypes\nif comm.rank == 1: ctypes.CDLL(None)._exit(0)\ncomm.barrier()")
    assert code != 0
    assert err == ["minidist.launch: rank 1 ended with exit code 0, but without a farewell (os._exit?)"]


def test_a_reader_that_has_left_does_not_end_the_program(tmp_path):
    (tmp_path / "program.py").write_text(
        START + "for line in range(3000): print('line', line)\n"
        f"if comm.rank == 0: open({str(tmp_path / 'done')!r}, 'w').close()\n"
    )
    command = f"{sys.executable} -m minidist.launch -n 2 {tmp_path}/program.py | head -n 1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("transport", ["mpi", "threads"])
def test_at_the_time_limit_every_rank_says_where_it_stands(run, transport):
    code, _, err = run(
        "if comm.rank == 0: time.sleep(60)\ncomm.barrier()", "--timeout", "2", "--transport", transport
    )
    assert code == 124
    assert re.fullmatch(r"rank 0 stands at .*program.py:4 in <module>: .*time\.sleep\(60\)", err[1])
    assert re.fullmatch(r"rank 1 stands at .*program.py:5 in <module>: comm\.barrier\(\)", err[2])
    if transport == "mpi":
        assert err[-1] == "Rank 0 has not come to barrier #0 on 'world', which ranks 1, 2 have called."
    else:
        assert len(err) == 4


def test_a_rank_that_ends_before_mpi_is_up_ends_the_job(tmp_path):
    script = tmp_path / "early.py"
    script.write_text(
        "import os, sys\n"
        "if os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK')) == '1': sys.exit(4)\n"
        "from mpi4py import MPI\n"
    )
    command = [sys.executable, "-m", "minidist.launch", "-n", "3", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 4
    assert "rank 1 ended with exit code 4" in done.stderr


def test_sigterm_to_the_command_ends_the_ranks(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(START + "print(os.getpid(), flush=True)\ntime.sleep(60)")
    command = subprocess.Popen(
        [sys.executable, "-m", "minidist.launch", "-n", "1", script], stdout=subprocess.PIPE
    )
    rank = int(command.stdout.readline())
    command.send_signal(signal.SIGTERM)
    assert command.wait(timeout=10) == 143
    command.stdout.close()
    assert not _runs(rank)


def test_a_job_whose_rank_is_killed_starts_again_from_its_newest_checkpoint_and_ends_with_the_same_weights(
    tmp_path,
):
    program = Path(__file__).parents[1] / "failures" / "injected.py"
    options = ["--steps", "9", "--every", "2", "--hidden", "16", "--quiet"]

    def train(name, inject):
        os.mkdir(tmp_path / name)
        keep = ["--checkpoint", str(tmp_path / name / "run"), "--json", str(tmp_path / name / "json")]
        command = [sys.executable, "-m", "minidist.launch", "-n", "3", "--max-restarts", "1", str(program)]
        environment = {**os.environ, "INJECT": inject, "INJECT_STAMPS": str(tmp_path / name)}
        done = subprocess.run(
            [*command, *options, *keep], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines(), json.loads((tmp_path / name / "json").read_text())

    (said, interrupted), (_, whole) = train("killed", "kill forward 2"), train("whole", "none never 9")
    assert said[0] == "minidist.launch: rank 2 was killed (SIGKILL)"
    assert said[-1] == "minidist.launch: restart 1 of 1, after exit code 137"
    assert any(re.match(r"  rank 2 +step \d", line) for line in said), said
    assert interrupted["parameters_sha256"] == whole["parameters_sha256"]
    assert interrupted["loss_history"] == whole["loss_history"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["-n", "2", "--max-restarts", "1", "--transport", "threads", "x.py"],
            "--max-restarts needs --transport mpi",
        ),
        (["-n", "0", "x.py"], "-n must be at least 1, not 0"),
        (["-n", "2", "missing.py"], "there is no script 'missing.py' here"),
        (["-n", "2", "--timeout", "-1", "x.py"], "--timeout must be more than 0 seconds, not -1"),
        (["-n", "2"], "which program?"),
    ],
)
def test_a_wrong_command_line_is_refused_with_a_sentence(arguments, said):
    done = subprocess.run(
        [sys.executable, "-m", "minidist.launch", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert said in done.stderr


# Python warns of a fork beside threads; here exec follows at once.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_in_a_terminal_rank_0s_progress_is_a_bar(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        START + "import json\n"
        "for step in 1, 2:\n"
        "    facts = dict(step=step, steps=2, epoch=1, loss=0.5, examples_per_second=1234.0, communication=0.25)\n"
        "    if comm.rank == 0:\n"
        "        with open(os.environ['MINIDIST_PROGRESS'], 'a') as file: file.write(json.dumps(facts) + '\\n')\n"
        "    time.sleep(0.2)\n"
        "    comm.barrier()\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        time.sleep(0.2)  # until the terminal has its size
        os.execv(sys.executable, [sys.executable, "-m", "minidist.launch", "-n", "2", str(script)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    printed = b""
    while True:
        try:
            printed += os.read(terminal, 65536)
        except OSError:  # the terminal's other side is closed
            break
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0
    assert "step 2/2" in printed.decode()
    assert "epoch 1, loss 0.5000, 1,234 examples/s, 25% communication" in printed.decode()


def test_outside_a_terminal_programs_print_their_own_lines(run):
    assert run("print('MINIDIST_PROGRESS' in os.environ)", n=1)[1] == ["False"]


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
