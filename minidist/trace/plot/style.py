"""How all pictures look: colours, hatchings, sizes of text, and how a figure is made.

    WIDTH   7 inches: the column of a notebook; no text is smaller than TEXT there
    LOOKS   what a rank does: a colour and a hatching, either of which is enough to tell one from another

Okabe & Ito, "Color Universal Design", 2008: eight colours that colour-blind people tell apart. Their lightness differs
too, so that a grey print can still be read. A figure is made without pyplot: no window opens, none is left over, and
`Picture` shows itself in a notebook. Read next: `timeline.py`, the picture with the most in it.
"""

from __future__ import annotations

import io
from importlib import util
from typing import TYPE_CHECKING, Any

from minidist.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 7.0  # inches
TEXT, TITLE = 9, 11  # points: the smallest text there is, and a picture's title

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, RED, PINK = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, PALE = "#8C8C8C", "#EDEDED"
CYCLE = (BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK, YELLOW)  # for lines: strong ones first
DASHES = ("-", "--", "-.", ":")  # and what tells them apart without colours
MARKERS = "osD^vP*X"

LOOKS = {  # what a rank does: (colour, hatching)
    "forward": (SKY, ""),
    "backward": (ORANGE, "//"),
    "weights": (YELLOW, ".."),
    "update": (GREEN, "xx"),
    "compute": (PINK, ""),
    "communication": (GREY, "||"),
    "idle": (PALE, ""),
}
NAMES = {"weights": "weights' part of backward", "compute": "other computing", "idle": "idle (waits)"}


def require_matplotlib() -> None:
    """Refuse to begin (UserError) where nothing could be drawn in the end."""
    if util.find_spec("matplotlib") is None:
        raise UserError('pictures need matplotlib, which is not installed: pip install "minidist[plot]"')


def figure(height: float, width: float = WIDTH) -> Any:
    """Make an empty figure of so many inches, which lays out its axes by itself."""
    require_matplotlib()
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that a notebook shows, also where pyplot was never imported."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png")
            return file.getvalue()

    return Picture(figsize=(width, height), dpi=100, layout="constrained", facecolor="white")


def axes_in(ax: Axes | None, height: float) -> Axes:
    """Give the axes to draw in: those that the caller has, or those of a new figure."""
    return figure(height).add_subplot() if ax is None else ax


def letter(ax: Axes, title: str, x: str = "", y: str = "") -> None:
    """Write title and names of axes, and set the sizes of all text that is there."""
    ax.set_title(title, fontsize=TITLE, loc="left")
    ax.set_xlabel(x, fontsize=TEXT)
    ax.set_ylabel(y, fontsize=TEXT)
    ax.tick_params(labelsize=TEXT)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
