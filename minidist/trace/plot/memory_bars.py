"""Draw what one rank holds, as bars beside each other: of ZeRO's stages, say, or of several modes.

    stage 0   |weights   |gradients |optimizer state    |  48 MB
    stage 2   |weights   |g|state |                        20 MB

Read next: `minidist/plan/memory.py`, which says what a rank holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from minidist.trace.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KNOWN = {  # colour and hatching of what most hold
    "weights": (style.SKY, ""),
    "gradients": (style.ORANGE, "//"),
    "optimizer state": (style.GREEN, "xx"),
    "gradients being written": (style.YELLOW, ".."),
    "weights being read": (style.PALE, "||"),
}
OTHER = ((style.PINK, "oo"), (style.GREY, "--"), (style.BLUE, "++"), (style.RED, "\\\\"))


class Held(Protocol):
    """Some bytes that a rank holds (`minidist/plan/memory.py`)."""

    @property
    def what(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def always(self) -> bool: ...


def memory_bars(
    held: Mapping[str, Sequence[Held]], title: str = "What one rank holds", ax: Axes | None = None
) -> Any:
    """Draw a bar for each name in `held`, of all that stands there; what is held only for a while is framed by dashes.

    held: e.g. `plan.memory.stages(groups, ranks=4, slots=2)`. Gives the figure.
    """
    ax = style.axes_in(ax, 1.35 + 0.36 * len(held))
    most = max((sum(part.nbytes for part in parts) for parts in held.values()), default=0)
    unit, word = style.bytes_unit(most)
    looks = iter(OTHER * len(held))
    drawn: dict[str, Any] = {}
    of = dict(KNOWN)
    for y, parts in enumerate(held.values()):
        left = 0.0
        for part in parts:
            look = of.get(part.what) or of.setdefault(part.what, next(looks))
            width = part.nbytes / unit
            bar = ax.barh(
                y, width, 0.7, left, color=look[0], hatch=look[1], edgecolor=style.BLACK, linewidth=0.8
            )
            for patch in bar:
                patch.set_linestyle("-" if part.always else "--")
            drawn.setdefault(part.what, bar)
            left += width
        ax.text(left + most / unit * 0.01, y, f"{left:.3g} {word}", fontsize=style.TEXT, va="center")
    ax.set_yticks(range(len(held)), list(held))
    ax.set_ylim(len(held) - 0.5, -0.5)
    ax.set_xlim(0, most / unit * 1.15 or 1)
    style.letter(ax, title, f"{word} of one rank (dashed: for a while in each step)")
    figure: Any = ax.get_figure(root=True)
    figure.legend(
        list(drawn.values()),
        list(drawn),
        loc="outside lower center",
        ncols=3,
        fontsize=style.TEXT,
        frameon=False,
    )
    return figure
