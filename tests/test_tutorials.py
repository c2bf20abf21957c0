"""The tutorials: each is what its source makes, and what it points to is there. They are run by long_tutorials.py."""

import importlib
import re
from pathlib import Path

import pytest

pytest.importorskip("jupytext")

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "tutorials"
SOURCES = sorted(TUTORIALS.glob("[0-9][0-9]_*.md"))
NAMES = [source.stem for source in SOURCES]


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_a_notebook_is_what_its_source_makes(source, monkeypatch):
    monkeypatch.syspath_prepend(str(TUTORIALS))
    make = importlib.import_module("make")
    assert source.with_suffix(".ipynb").read_text(encoding="utf-8") == make.text(source), (
        f"{source.stem}.ipynb is not what {source.name} makes: run python tutorials/make.py"
    )


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_its_links_and_the_modules_that_it_names_are_there(source):
    text = source.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (TUTORIALS / target).exists(), f"the link to {target}"
    for path in re.findall(r"`((?:minidist|exercises|tutorials|benchmarks|docs)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), f"the file {path}"
    for command in re.findall(r"-m (minidist[\w.]*)", text):
        assert importlib.util.find_spec(command), f"the command -m {command}"
