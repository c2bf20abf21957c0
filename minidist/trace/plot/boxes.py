"""Boxes with words in them, drawn in inches: what the pictures of ideas are made of.

A picture measured in inches knows how long its texts are, so none is drawn where it does not fit. A rank has a light
colour and a hatching; either is enough to tell it from its neighbours. Read next: `who_read.py`, the plainest picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minidist.trace.plot import style

LETTER = 0.085  # inches of a letter of the smallest text, more than most take
LINE = 0.2  # inches from one line of text to the next
EDGE = 0.12  # inches that stay free around a picture
HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "--", "++")


def canvas(height: float, title: str) -> tuple[Any, Any]:
    """Make a figure of this many inches, and axes that count inches from its upper left corner."""
    figure = style.figure(height)
    figure.set_layout_engine("none")  # the axes are all of the figure
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    ax.set_xlim(0, style.WIDTH)
    ax.set_ylim(height, 0)
    ax.text(EDGE, 0.22, title, fontsize=style.TITLE, va="center")
    return figure, ax


def look(rank: int) -> dict[str, Any]:
    """Give a rank's colour and hatching."""
    turn = rank // len(style.CYCLE)
    return {
        "facecolor": style.lighter(style.CYCLE[rank % len(style.CYCLE)], 0.55),
        "hatch": HATCHES[(rank + turn) % len(HATCHES)],
    }


def box(
    ax: Any,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str = "",
    rank: int | None = None,
    **how: Any,
) -> Any:
    """Draw a box of inches with a text in its middle, as far as that fits; rank: in whose look."""
    from matplotlib.patches import Rectangle

    plain: dict[str, Any] = {"facecolor": "white", "edgecolor": style.BLACK, "linewidth": 0.8}
    how = plain | ({} if rank is None else look(rank)) | how
    ax.add_patch(drawn := Rectangle((x, y), width, height, **how))
    fitting = short(text, width - 0.06) if height >= LINE - 0.04 else ""
    if fitting:
        write(ax, x + width / 2, y + height / 2, fitting, ha="center", framed=bool(how.get("hatch")))
    return drawn


def write(ax: Any, x: float, y: float, text: str, ha: str = "left", framed: bool = False, **how: Any) -> None:
    """Write a line of text; framed: on white, so that no hatching runs through it."""
    frame = {"facecolor": "white", "edgecolor": "none", "pad": 1.0} if framed else None
    ax.text(x, y, text, ha=ha, va="center_baseline", fontsize=style.TEXT, bbox=frame, **how)


def short(text: str, inches: float) -> str:
    """Cut the middle out of a text that is too long; numbers, and what would have under 5 letters, go altogether."""
    room = int(inches / LETTER)
    if len(text) <= room:
        return text
    if room < 5 or text.isdigit():
        return ""
    head = (room - 1) // 2
    return f"{text[:head]}…{text[len(text) - (room - 1 - head) :]}"


def legend(ax: Any, y: float, names: Sequence[str], first: int = 0) -> float:
    """Say below a picture which look is whose, from rank `first` on; give the y where that ends."""
    x = EDGE
    for place, name in enumerate(names):
        width = 0.3 + LETTER * len(name) + 0.15
        if x + width > style.WIDTH and x > EDGE:
            x, y = EDGE, y + LINE + 0.05
        box(ax, x, y, 0.22, 0.16, rank=first + place)
        write(ax, x + 0.28, y + 0.08, name)
        x += width
    return y + LINE + 0.05


def rows_of(names: Sequence[str]) -> int:
    """Say how many lines `legend` takes for these names."""
    lines, x = 1, EDGE
    for name in names:
        width = 0.3 + LETTER * len(name) + 0.15
        if x + width > style.WIDTH and x > EDGE:
            x, lines = EDGE, lines + 1
        x += width
    return lines
