"""The memory of arrays: kept when it is freed, and in large pages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import minidist._kernels
import numpy as np
x = np.zeros(1 << 20, np.uint8) + 1
address = x.__array_interface__["data"][0]
inside = False
for line in open("/proc/self/smaps"):
    words = line.split()
    if "-" in words[0] and not words[0].endswith(":"):
        low, high = (int(end, 16) for end in words[0].split("-"))
        inside = low <= address < high
    elif inside and words[0] == "VmFlags:":
        print("hg" in words)
"""


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists()
    or "glibc" not in os.confstr("CS_GNU_LIBC_VERSION"),
    reason="large pages are a matter of Linux with glibc",
)
@pytest.mark.parametrize(("settings", "large"), [({}, True), ({"MALLOC_TOP_PAD_": "0"}, False)])
def test_arrays_are_made_in_large_pages_unless_the_user_has_settings(
    settings: dict[str, str], large: bool
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(large)]
