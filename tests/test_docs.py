"""The ready files for clusters are valid, and their commands have options that exist."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from minidist.train.options import parse

CLUSTER = Path(__file__).parent.parent / "docs" / "cluster"
SCRIPTS = sorted([*CLUSTER.glob("*.sh"), *CLUSTER.glob("*.sbatch")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_valid_and_trains_with_options_that_exist(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    commands = re.findall(r"python -m minidist\.train(.*)", script.read_text())
    assert commands
    for options in commands:
        parse(shlex.split(options))


def test_the_start_says_how_it_is_used() -> None:
    said = subprocess.run([CLUSTER / "start.sh"], capture_output=True, text=True)
    assert said.returncode == 2
    assert "start.sh HOSTFILE RANKS python" in said.stderr


def test_the_page_names_files_that_exist() -> None:
    page = (CLUSTER.parent / "more_than_one_machine.md").read_text()
    links = re.findall(r"\]\((cluster/[^)]*)\)", page) + re.findall(r"docs/(cluster/\S+)", page)
    assert links
    for link in links:
        assert (CLUSTER.parent / link).exists(), link
