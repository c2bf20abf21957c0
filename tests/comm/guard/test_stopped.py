"""A rank that is stopped is named, though others stand between it and who has waited longest; nobody is ended."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import cloudpickle
import numpy as np

from minidist.comm import Communicator
from minidist.comm.guard.graph import Message, Operation, Standing, runs_behind
from minidist.launch import launch

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test

# Wakes a process when the report has been written.
WAKE = """
import os, pathlib, signal, sys, time
report, end = pathlib.Path(sys.argv[1]), time.monotonic() + 20
while not report.exists() and time.monotonic() < end:
    time.sleep(0.05)
os.kill(int(sys.argv[2]), signal.SIGCONT)
"""


def a_chain(comm: Communicator, report: str) -> int:
    """Receive from the next rank, and send on; the last one is stopped before it sends."""
    x = np.full(3, comm.rank)
    comm.barrier()
    if comm.rank == comm.size - 1:
        with subprocess.Popen([sys.executable, "-c", WAKE, report, str(os.getpid())]):
            os.kill(os.getpid(), signal.SIGSTOP)
    else:
        comm.recv(x, comm.rank + 1)
    if comm.rank > 0:
        comm.send(x, comm.rank - 1)
    return int(x[0])


def test_a_stopped_rank_is_named_once_and_the_job_goes_on_with_it(monkeypatch, tmp_path: Path):
    report = tmp_path / "report"
    monkeypatch.setenv("MINIDIST_GUARD_TIMEOUT", "1")
    monkeypatch.setenv("MINIDIST_GUARD_REPORT", str(report))
    assert launch(a_chain, 4, str(report), guard=True, timeout=40) == [3, 3, 3, 3]
    told = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(fault["kind"], fault["ranks"]) for fault in told] == [("straggler", [3])]


def waits(rank: int, peer: int) -> Standing:
    """Give a rank that waits for a message of another."""
    message = Message(sending=False, peer=peer, tag=0)
    op = Operation("recv", "world", "()", (0, 1, 2, 3), "a.py:1", peer=peer, tag=0, messages=(message,))
    return Standing(rank, "waits", (op,))


def test_ranks_that_run_are_found_behind_those_that_wait_for_them():
    standings = {0: waits(0, 1), 1: waits(1, 2), 2: Standing(2, "runs"), 3: waits(3, 0)}
    assert [runs_behind(rank, standings) for rank in standings] == [{2}, {2}, set(), {2}]
    assert runs_behind(0, {0: waits(0, 1), 1: waits(1, 0)}) == set()
