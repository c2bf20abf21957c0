"""A rank that asks `request.test()` without an end waits, and one that gives up some day does not."""

import sys
import textwrap

import cloudpickle
import numpy as np
import pytest

from minidist.comm import Communicator
from minidist.comm.guard.polling import only_test_ends
from minidist.launch import RankFailed, launch

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks cannot import a test

ENDLESS = [
    "while not request.test(): pass  # here",
    "while not request.test():  # here\n    worked += 1\n    time.sleep(0.1)",
    "while not all(r.test() for r in requests): pass  # here",
    "while any(not r.test() for r in requests): pass  # here",
    "while not (a.test() and b.test()): print('not yet')  # here",
    "while requests:\n    requests = [r for r in requests if not r.test()]  # here",
    "done = False\nwhile not done:\n    done = request.test()  # here",
    "while True:\n    if request.test():  # here\n        break",
    "while True:\n    if not request.test():  # here\n        worked += 1\n    else:\n        break",
    "for request in requests:\n    while not request.test():  # here\n        pass",
]
BOUNDED = [
    "request.test()  # here",
    "for _ in range(9):\n    if request.test():  # here\n        break",
    "while not request.test() and time.time() < end: pass  # here",
    "while not request.test() and tries:  # here\n    tries -= 1",
    "while not request.test():  # here\n    if worked > 9:\n        break\n    worked += 1",
    "while not request.test():  # here\n    comm.send(x, 1)",
    "while not request.test():  # here\n    work()",
    "while True:\n    done = request.test()  # here\n    done = done or time.time() > end\n    if done: break",
    "while not done:\n    done = request.test()  # here\n    if late: done = True",
    "while True:\n    if request.test():  # here\n        break\n    elif late:\n        raise TimeoutError",
    "while waiting:\n    for name in list(waiting):\n        if waiting[name].test(): del waiting[name]  # here",
]


@pytest.mark.parametrize(("loop", "endless"), [(s, True) for s in ENDLESS] + [(s, False) for s in BOUNDED])
def test_a_loop_is_endless_if_only_test_ends_it(loop, endless, tmp_path):
    text = "def program():\n" + textwrap.indent(loop, "    ")
    file = tmp_path / "program.py"
    file.write_text(text)
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "# here" in line)
    assert only_test_ends(f"{file}:{number}") is endless


def each_polls_first(comm: Communicator) -> None:
    """Be stuck: ranks 0 and 1 poll for each other, the others wait for them."""
    theirs = np.empty(3)
    if comm.rank < 2:
        request = comm.irecv(theirs, 1 - comm.rank)
        while not request.test():
            pass
        comm.send(np.ones(3), 1 - comm.rank)
    comm.barrier()


@pytest.mark.parametrize("transport", ["threads", "mpi"])
def test_ranks_that_poll_for_each_other_are_stuck(transport):
    with pytest.raises(RankFailed, match=r"(?s)rank 0 +waits in irecv.*rank 2 +waits in barrier.*"):
        launch(each_polls_first, 3, transport=transport, guard=True, timeout=20)
