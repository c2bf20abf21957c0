"""Cores: the smaller of affinity and cgroup quota, read from made-up system files."""

import os

import pytest

from minidist import machine


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


V1 = "sys/fs/cgroup/cpu/docker/abc"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "6400000 100000\n"}, 8),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/cpu.max": "400000 100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n",
                f"{V1}/cpu.cfs_quota_us": "400000\n",
                f"{V1}/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n",
                f"{V1}/cpu.cfs_quota_us": "-1\n",
                f"{V1}/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
    ids=[
        "not Linux",
        "version 2",
        "no limit",
        "a fraction is cut",
        "never less than one",
        "affinity is smaller",
        "the smallest of all parents",
        "version 1",
        "version 1 without a limit",
    ],
)
def test_cores_are_the_smaller_of_affinity_and_quota(tmp_path, eight_cores, files, cores):
    write(tmp_path, files)
    assert machine.core_count(tmp_path) == cores


def test_a_system_without_affinity_counts_its_cores(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert machine.core_count(tmp_path) == 6


def test_this_machine_has_a_core():
    assert 1 <= machine.core_count() <= os.cpu_count()
