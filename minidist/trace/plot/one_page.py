"""Draw one page of a run: every picture that has something to say of it.

    | timeline                    |
    | loss         | time split   |      what a run does not know (a simulated one has no losses) is left out
    | bytes        | memory       |
    | roofline     |

Read next: `__init__.py`, which lists the pictures.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from minidist.errors import UserError
from minidist.trace.plot import rows, style
from minidist.trace.plot.bytes_matrix import bytes_matrix
from minidist.trace.plot.curves import curves
from minidist.trace.plot.memory import memory
from minidist.trace.plot.roofline import roofline
from minidist.trace.plot.time_split import time_split
from minidist.trace.plot.timeline import timeline
from minidist.trace.timeline import Timeline

SUFFIXES = (".png", ".svg", ".pdf")
DOTS = 150  # per inch


def check_picture(path: str, option: str = "--plot") -> None:
    """Refuse (UserError) a picture that could not be written in the end, for its kind or for want of matplotlib."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UserError(
            f"{option} {path}: a picture's name ends with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        )
    style.require_matplotlib()


def one_page(run: Timeline) -> Any:
    """Draw it, and give the matplotlib figure."""
    small = [time_split]
    if run.facts.get("losses"):
        small.insert(0, curves)
    if run.sent.any():
        small.append(bytes_matrix)
    if any(run.memory):
        small.append(memory)
    if run.facts.get("work"):
        small.append(roofline)
    shown = len(rows.shown_ranks(run))
    above = 1.7 + (0.32 if shown <= 8 else 0.2) * shown
    pairs = [small[place : place + 2] for place in range(0, len(small), 2)]
    below = [max(3.0, 1.5 + 0.2 * shown) if time_split in pair else 3.6 for pair in pairs]
    words = textwrap.fill(str(run.facts.get("command", "")), 80)
    figure = style.figure(above + sum(below) + 0.2 * words.count("\n"))
    if words:
        figure.suptitle(words, fontsize=style.TEXT, x=0.01, ha="left", family="monospace")
    parts = figure.subfigures(1 + len(pairs), 1, height_ratios=[above, *below])
    timeline(run, ax=parts[0].subplots())
    for pair, part in zip(pairs, parts[1:], strict=True):
        for draw, place in zip(pair, part.subfigures(1, len(pair), squeeze=False)[0], strict=True):
            draw(run, ax=place.subplots())
    return figure


def save(figure: Any, path: str | Path, suffix: str) -> None:
    """Write a figure to a file, as a picture of this kind (".png"). Raises OSError where that cannot be done."""
    figure.savefig(path, format=suffix.removeprefix(".").lower(), dpi=DOTS)
