"""Make the notebooks from their sources: `python tutorials/make.py`; it needs `pip install jupytext`.

    00_ranks.md  ->  00_ranks.ipynb         a source is text that reads well and compares well

A notebook in this folder has no outputs: whoever opens it runs it. Edit the source, then run this. The tests refuse a
notebook that is not what its source makes.
"""

import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat

HERE = Path(__file__).parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def sources() -> list[Path]:
    """Give the sources in reading order."""
    return sorted(HERE.glob("[0-9][0-9]_*.md"))


def notebook(source: Path) -> Any:
    """Make the notebook of a source, the same at each time."""
    made = jupytext.read(source, fmt="md:myst")
    made.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number:02}"
        tags = cell.metadata.get("tags", [])
        if "check" in tags:  # folded, in JupyterLab and on the site
            cell.metadata["jupyter"] = {"source_hidden": True}
            tags.append("hide-input")
        if "answer" in tags:  # folded on the site, where it would be read before one has guessed
            tags.append("hide-cell")
    return nbformat.v4.upgrade(made)


def text(source: Path) -> str:
    """Give the notebook of a source as it stands in its file."""
    return nbformat.writes(notebook(source)) + "\n"


if __name__ == "__main__":
    for source in sources():
        source.with_suffix(".ipynb").write_text(text(source), encoding="utf-8")
    sys.exit(0)
