"""`python -m minidist.train`, with something that goes wrong on the way: a program for tests, never imported.

INJECT="KIND WHERE RANKS" in the environment says what, where, and on which ranks ("2", "0,1,2,3"). Nothing in minidist
knows of it: what is to fail is wrapped here. The moment is noted in the folder INJECT_STAMPS.
"""

import os
import signal
import sys
import time

KIND, WHERE, RANKS = os.environ["INJECT"].split()
RANK = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or "0"


def fail():
    """Let this rank fail, if it is its turn."""
    if RANK not in RANKS.split(","):
        return
    stamp = os.path.join(os.environ["INJECT_STAMPS"], RANK)
    if os.path.exists(stamp):
        return
    with open(stamp + ".part", "w") as file:
        file.write(repr(time.monotonic()))
    os.rename(stamp + ".part", stamp)
    if KIND == "raise":
        raise ValueError("injected")
    if KIND == "memory":
        bytearray(1 << 60)
    if KIND.startswith("exit"):
        sys.exit(int(KIND[4:]))
    if KIND.startswith("os_exit"):
        os._exit(int(KIND[7:]))
    if KIND.startswith("c_exit"):
        import ctypes

        ctypes.CDLL(None)._exit(int(KIND[6:]))
    if KIND == "segfault":
        import ctypes

        ctypes.string_at(0)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "term": signal.SIGTERM, "interrupt": signal.SIGINT}[KIND])
    time.sleep(1e-3)  # for Python to hear of it


def failing(where, function, at=1):
    """Wrap a function so that it fails at its `at`-th call."""
    calls = 0

    def wrapped(*args, **kwargs):
        nonlocal calls
        calls += where == WHERE
        if calls == at:
            fail()
        return function(*args, **kwargs)

    return wrapped


if WHERE == "import":
    fail()
import minidist.comm.progress  # noqa: E402
import minidist.split.whole  # noqa: E402
import minidist.sync.data_parallel  # noqa: E402
from minidist.train.__main__ import main  # noqa: E402

if WHERE == "start":
    fail()
whole, parallel = minidist.split.whole.Whole, minidist.sync.data_parallel.DataParallel
whole.forward_backward = failing("forward", whole.forward_backward, at=5)
parallel.gradient_ready = failing("backward", parallel.gradient_ready, at=5)
progress = minidist.comm.progress.Progress
progress.wait = failing("collective", progress.wait, at=30)
os.fsync = failing("checkpoint", os.fsync, at=4)
try:
    code = main(sys.argv[1:])
finally:
    if WHERE == "exit" and sys.exc_info()[0] is None:
        fail()
sys.exit(code)
