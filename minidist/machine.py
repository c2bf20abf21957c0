"""What this machine offers: how many cores the ranks can really have, and an end together with whoever started us.

The number of cores in the machine is the wrong answer twice. A process may be bound to some of them
(affinity), and a container may be given less time than its cores have (a cgroup quota: `docker run --cpus=2`
sets one on a machine of 64). More ranks than this take turns on a core, and run slower, not faster.
Read next: `random.py`, the other file that everything else may lean on.
"""

import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of prctl(2): a signal that comes when the parent ends


def core_count(root: Path = Path("/")) -> int:
    """Count the cores that this process may use: the smaller of affinity and cgroup quota, at least 1.

    A quota of 2.5 cores counts as 2: a third rank would wait half of its time. `root` is where Linux keeps
    /proc and /sys.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS and Windows bind nobody
        cores = os.cpu_count() or 1
    return max(1, int(min(cores, cgroup_quota(root))))


def cgroup_quota(root: Path = Path("/")) -> float:
    """Return how many cores' worth of time this process's cgroups allow; infinity where there is no limit.

    A limit binds everything below it, so the smallest on the way from this process's group up to the top
    counts. Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst
    (version 1).
    """
    quota = float("inf")
    for line in _read(root / "proc/self/cgroup").splitlines():
        # "0::/user.slice" is version 2, "4:cpu,cpuacct:/docker/..." is version 1.
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            top = root / "sys/fs/cgroup"
        elif "cpu" in controllers.split(","):
            top = root / "sys/fs/cgroup/cpu"
        else:
            continue
        here = top / group.strip("/")
        for directory in (here, *here.parents):
            if directory == top.parent:
                break
            # "200000 100000": microseconds of time, of every so many; in one file, or (version 1) in two.
            files = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
            limit = [word for file in files for word in _read(directory / file).split()]
            if len(limit) == 2 and limit[0] not in ("max", "-1"):
                quota = min(quota, int(limit[0]) / int(limit[1]))
    return quota


def end_with_parent() -> None:
    """Let this process have a SIGTERM when the thread ends that started it, even by SIGKILL (Linux)."""
    if sys.platform == "linux":
        import ctypes  # takes a moment, and most programs never come here

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # not Linux, or not this version of cgroups
        return ""
