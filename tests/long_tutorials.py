"""The tutorials run from top to bottom, and what their prose says is true: their cells tagged "check" assert it.

MINIDIST_TUTORIALS says which: "all" (the default), "today" (one, another one each day), or how their names begin: "03".
MINIDIST_TUTORIAL_TIMES=1 prints the seconds of the slowest cell and of all.
"""

import os
import time
from datetime import datetime
from pathlib import Path

import nbclient
import nbformat
import pytest

SOURCES = sorted((Path(__file__).parents[1] / "tutorials").glob("[0-9][0-9]_*.ipynb"))
WANTED = os.environ.get("MINIDIST_TUTORIALS", "all")
LIMIT = 150  # seconds for a cell: ten times what one may take on two cores that do nothing else


def wanted(number: int, source: Path) -> bool:
    """Say whether to run this one."""
    if WANTED == "today":
        return number == time.time() // 86400 % len(SOURCES)
    return WANTED == "all" or source.name.startswith(WANTED)


RUN = [source for number, source in enumerate(SOURCES) if wanted(number, source)]


@pytest.mark.parametrize("source", RUN, ids=[source.stem for source in RUN])
def test_it_runs_from_top_to_bottom(source, tmp_path):
    book = nbformat.read(source, as_version=4)
    elsewhere = {"metadata": {"path": str(tmp_path)}}  # it works alone, without the checkout around it
    client = nbclient.NotebookClient(
        book, timeout=LIMIT, kernel_name="python3", resources=elsewhere, record_timing=True
    )
    client.execute()
    for cell in book.cells:
        if "raises-exception" in cell.metadata.get("tags", []):
            failed = any(output.output_type == "error" for output in cell.outputs)
            assert failed, f"this cell is said to fail, and did not:\n{cell.source}"
    if os.environ.get("MINIDIST_TUTORIAL_TIMES"):
        times = [seconds(cell) for cell in book.cells if cell.cell_type == "code"]
        print(f"{source.stem}: {sum(times):.1f} s, the slowest cell {max(times):.1f} s")


def seconds(cell):
    """Give how long a cell ran."""
    noted = cell.metadata["execution"]
    began, ended = (
        datetime.fromisoformat(noted[key]) for key in ("iopub.execute_input", "shell.execute_reply")
    )
    return (ended - began).total_seconds()
