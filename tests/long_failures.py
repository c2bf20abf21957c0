"""Every way to fail, on one rank and on all, at every stage of a training, however it was started.

pytest tests/long_failures.py

Not part of plain `pytest`, which has a sample of it in tests/comm/test_leaving.py. Each case asks: are all processes
gone, is the exit code not zero, is the cause the first line and there once, is nothing left in shared memory and in the
temporary folder? The time from the injection to the end of the last process is printed when all is over.
"""

import collections
import glob
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minidist import leftovers
from minidist.launch import mpiexec

PROGRAM = Path(__file__).parent / "failures" / "injected.py"
RANKS = 4
LIMIT = 15.0  # seconds for an end: it is measured, not judged, except that it must come
KINDS = ("raise", "memory", "exit0", "exit3", "os_exit0", "os_exit3", "kill", "term", "segfault", "interrupt")
PLACES = ("import", "start", "forward", "backward", "collective", "checkpoint", "exit")
# What the first line about it says, once MPI is up.
CAUSE = {
    "raise": r"ValueError: injected",
    "memory": r"MemoryError",
    "exit0": r"already finished the program",
    "exit3": r"called sys\.exit\(3\)",
    "os_exit0": r"called os\._exit\(0\)",
    "os_exit3": r"called os\._exit\(3\)",
    "kill": r"\(signal 9\)|was killed \(SIGKILL\)",
    "term": r"SIGTERM|signal 15",
    "segfault": r"Fatal Python error: Segmentation fault|signal 11|segmentation fault \(SIGSEGV\)",
    "interrupt": r"interrupted|KeyboardInterrupt",
}
times: dict[str, list[tuple[float, str]]] = collections.defaultdict(list)


@pytest.fixture(scope="module", autouse=True)
def report(request):
    """Say at the end how long it took until the last process was gone."""
    yield
    lines = [
        f"{launcher:<10} {len(took):>4} ends: median {statistics.median(t for t, _ in took):.2f} s, longest "
        + ", ".join(f"{t:.2f} s ({what})" for t, what in sorted(took)[-3:])
        for launcher, took in sorted(times.items())
    ]
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\n" + "\n".join(lines))


def remains() -> set[str]:
    """List what MPI may have left on this machine."""
    return {path for pattern in leftovers.REMAINS for path in glob.glob(pattern)}


class Injected:
    """A training that fails, and what is left of it."""

    def __init__(self, launcher: str, inject: str, folder: Path) -> None:
        self.launcher, self.inject, self.folder = launcher, inject, folder
        self.temporary, self.stamps = folder / "tmp", folder / "stamps"
        self.temporary.mkdir()
        self.stamps.mkdir()
        self.marker = f"INJECT_STAMPS={self.stamps}"
        self.before = remains()
        options = [
            "--epochs",
            "1000",
            "--steps",
            "25" if " exit " in inject else "100000",
            "--hidden",
            "32",
            "--quiet",
        ]
        if inject.split()[1] == "checkpoint":
            options += [
                "--checkpoint",
                str(folder / "saved"),
                "--every",
                "10",
                "--zero",
                "1",
            ]  # all ranks write
        program = [str(PROGRAM), *options]
        start = {
            "mpiexec": [mpiexec.find_mpiexec(), "-n", str(RANKS), sys.executable],
            "launch": [sys.executable, "-m", "minidist.launch", "-n", str(RANKS)],
            "function": [sys.executable],
        }[launcher]
        if launcher == "function":
            program[0] = str(PROGRAM.with_name("from_a_function.py"))
        environment = {
            **os.environ,
            "INJECT": inject,
            "INJECT_STAMPS": str(self.stamps),
            "TMPDIR": str(self.temporary),
        }
        self.process = subprocess.Popen(
            [*start, *program],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def living(self) -> list[int]:
        """Find the processes of this job, wherever they hang in the tree."""
        found = []
        for pid, _, _ in mpiexec.processes():
            try:
                if self.marker.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
            except OSError:
                continue
        return found

    def wait(self, began: float | None = None) -> tuple[int, list[str]]:
        """Wait until everything has ended; return the exit code and the lines on stderr."""
        try:
            out, err = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            living = self.living()
            for pid in living:
                os.kill(pid, signal.SIGKILL)
            out, err = self.process.communicate()
            pytest.fail(f"{len(living)} processes were still there after 60 s; they had said:\n{err}")
        until = time.monotonic() + LIMIT
        while (living := self.living()) and time.monotonic() < until:
            time.sleep(0.01)
        ended = time.monotonic()
        for pid in living:  # do not disturb the next case
            os.kill(pid, signal.SIGKILL)
        assert not living, f"orphans: {living}"
        stamps = [float(file.read_text()) for file in self.stamps.iterdir() if not file.suffix]  # whole ones
        assert stamps or began, f"nothing was injected:\n{err}"
        times[self.launcher].append((ended - (began or min(stamps)), self.inject))
        left = [
            *(remains() - self.before - leftovers.in_use()),
            *os.listdir(self.temporary),
        ]  # others may run jobs
        if self.launcher == "mpiexec" and self.inject.split()[1] in ("import", "start", "never"):
            left = [
                name for name in left if not name.startswith(leftovers.PROCESSORS)
            ]  # the next job removes it
        if (
            self.process.returncode < 0
        ):  # the launcher itself was killed: its folder is removed by the next one
            left = [name for name in left if not name.startswith("minidist-")]
        assert not left, f"left behind: {left}"
        said = [line for line in err.splitlines() if line.strip()]
        said += [line for line in out.splitlines() if "EXIT STRING" in line]  # what mpiexec says of a signal
        return self.process.returncode, said


def cases():
    """Yield every case that makes sense: (launcher, kind, where, ranks)."""
    for launcher in ("mpiexec", "launch"):
        for where in PLACES:
            for kind in KINDS:
                for ranks in ("2", "0,1,2,3"):
                    yield launcher, kind, where, ranks


@pytest.mark.parametrize(("launcher", "kind", "where", "ranks"), list(cases()))
def test_whatever_fails_ends_all_and_says_why_first_and_once(launcher, kind, where, ranks, tmp_path):
    job = Injected(launcher, f"{kind} {where} {ranks}", tmp_path)
    code, said = job.wait()
    if kind == "exit0" and where in ("collective", "checkpoint") and ranks != "2":
        return  # they may all have been at the same one, or some waited for others
    if kind == "exit0" and (where == "exit" or ranks != "2"):
        assert (code, said) == (0, [])  # that is no failure
        return
    before_mpi = where in ("import", "start")
    if before_mpi and ranks != "2" and "exit" in kind:
        assert (code != 0) == ("3" in kind)  # as without MPI: they knew nothing of each other
        return
    assert code != 0, said
    also = (
        r"|ended before MPI was up|already finished|exit code \d|left while MPI was starting"
        if before_mpi
        else ""
    )
    matching = [number for number, line in enumerate(said) if re.search(CAUSE[kind] + also, line)]
    assert matching, "\n".join(said)
    above = [line for line in said[: matching[0]] if not re.match(r"(\[rank \d\] )?(Traceback|  )", line)]
    assert not above or kind == "interrupt", "\n".join(said)  # the cause comes first ...
    alone = (
        ranks == "2"
        or (launcher == "launch" and where != "import")
        or (not before_mpi and kind != "segfault")
    )
    if alone:  # ... and once; before anything is imported, ranks know nothing of each other
        assert len([line for line in said if re.search(CAUSE[kind], line)]) <= 1 + 2 * (kind == "segfault"), (
            "\n".join(said)
        )


@pytest.mark.parametrize("where", ["forward", "collective"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "exit0"])
def test_what_fails_in_a_function_ends_all_ranks_and_is_raised(kind, where, tmp_path):
    code, said = Injected("function", f"{kind} {where} 2", tmp_path).wait()
    assert code == 1, said
    words = {
        "exit3": "sys.exit(3)",
        "kill": "was killed (SIGKILL)",
        "os_exit0": "rank 2",
        "os_exit3": "exit code 3",
    }
    words |= {
        "term": "sys.exit(143)",
        "segfault": "SIGSEGV",
        "interrupt": "KeyboardInterrupt",
        "memory": "MemoryError",
    }
    assert re.match(f"rank {0 if kind == 'term' else 2} of {RANKS} on mpi: ", said[0]), (
        said
    )  # SIGTERM stops all alike
    assert words.get(kind, "ValueError: injected") in said[0], said


@pytest.mark.parametrize("launcher", ["mpiexec", "launch"])
@pytest.mark.parametrize("number", range(30))
def test_a_signal_at_any_moment_to_any_rank_ends_all(launcher, number, tmp_path):
    rng = random.Random(f"{launcher} {number}")
    job = Injected(launcher, "none never 9", tmp_path)
    time.sleep(rng.uniform(0.02, 1.2))
    ranks = [pid for pid in job.living() if is_rank(pid)]
    victim = rng.choice(sorted(ranks)) if ranks else job.process.pid
    began = time.monotonic()
    os.kill(victim, rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV]))
    code, said = job.wait(began)
    assert code != 0
    assert said or not ranks


def is_rank(pid):
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return os.path.basename(command[0]).startswith(b"python") and str(PROGRAM).encode() == command[1]
