"""How all pictures look: colours, hatchings, sizes of text, and how a figure is made.

    WIDTH   7 inches: the column of a notebook; no text is smaller than TEXT there
    LOOKS   what a rank does: a colour and a hatching, either of which is enough to tell one from another

Okabe & Ito, "Color Universal Design", 2008: eight colours that colour-blind people tell apart. Their lightness differs
too, so that a grey print can still be read. A figure is made without pyplot: no window opens, none is left over, and
`Picture` shows itself in a notebook. Read next: `timeline.py`, the picture with the most in it.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from importlib import util
from typing import TYPE_CHECKING, Any

from minidist.errors import UserError
from minidist.trace.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 7.0  # inches
TEXT, TITLE = 9, 11  # points: the smallest text there is, and a picture's title
LETTERS = 76  # of a title in a line of WIDTH

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
NAMES = {"weights": "backward of weights", "compute": "other", "idle": "idle (bubble)"}


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


def several(runs: Timeline | Sequence[Timeline]) -> list[Timeline]:
    """Give a list, also of one run."""
    return [runs] if isinstance(runs, Timeline) else list(runs)


def lighter(colour: str, by: float) -> tuple[float, float, float]:
    """Mix a colour with so much white: 0 none, 1 all."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return tuple(part + (1 - part) * by for part in (red, green, blue))  # type: ignore[return-value]


def legend_below(ax: Axes, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Explain what is drawn, below the axes and the name of x, in as many columns as fit."""
    from matplotlib.transforms import ScaledTranslation

    widest = (
        0.56 * TEXT * max(map(len, labels), default=0) + 34
    )  # points: letters, and the sample before them
    below = ax.transAxes + ScaledTranslation(0, -0.45, ax.figure.dpi_scale_trans)
    ax.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=below,
        ncols=max(1, int((room(ax) - 0.5) * 72 / widest)),
        fontsize=TEXT,
        frameon=False,
        borderaxespad=0,
        columnspacing=1.2,
        handletextpad=0.5,
    )


def room(ax: Axes) -> float:
    """Say how many inches there are for the axes and what stands beside them."""
    place = ax.get_subplotspec()
    return ax.figure.bbox.width / ax.figure.dpi / (place.get_gridspec().ncols if place else 1)


def empty(ax: Axes, why: str) -> None:
    """Say why there is nothing to see."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(0.5, 0.5, why, fontsize=TEXT, ha="center", va="center", transform=ax.transAxes, wrap=True)


def time_unit(seconds: float) -> tuple[float, str]:
    """Choose the unit in which so many seconds are a number that can be read: (its seconds, its name)."""
    units = ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))
    return next((unit for unit in units if seconds >= 2 * unit[0]), units[-1])


def bytes_unit(nbytes: float) -> tuple[float, str]:
    """Choose the unit in which so many bytes are a number that can be read: (its bytes, its name)."""
    units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((unit for unit in units if nbytes >= unit[0]), (1.0, "bytes"))


def letter(ax: Axes, title: str, x: str = "", y: str = "") -> None:
    """Write title and names of axes, and set the sizes of all text that is there."""
    fits = int(LETTERS * room(ax) / WIDTH)
    lines = [textwrap.fill(line, fits) for line in title.split("\n")]
    ax.set_title("\n".join(lines), fontsize=TITLE, loc="left")
    ax.set_xlabel(x, fontsize=TEXT)
    ax.set_ylabel(y, fontsize=TEXT)
    ax.tick_params(labelsize=TEXT)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
