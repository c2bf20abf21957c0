"""Draw who waits for whom where ranks can never go on: an arrow leads from a rank to the one that it waits for.

        0 ---> 1        rank 0 waits in recv(source=1, tag=0)    program.py:12
        ^      |        rank 1 waits in recv(source=2, tag=0)    program.py:12
        +-- 2 <+        rank 2 waits in recv(source=0, tag=0)    program.py:12

Read next: `minidist/comm/guard/graph.py`, which finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import cos, hypot, pi, sin
from os.path import basename
from typing import Any

from minidist.comm.errors import DeadlockError
from minidist.comm.guard.graph import Standing, stuck
from minidist.errors import UserError
from minidist.trace.plot import style
from minidist.trace.plot.boxes import EDGE, LETTER, canvas, short, write

AROUND = 0.17  # inches: the radius of a rank's circle
LOOKS = {  # a rank's state: colour, style of the line around it
    "stuck": (style.ORANGE, "-"),
    "waits": (style.YELLOW, "-"),
    "runs": ("#9ADBC3", "-"),
    "left": ("white", "--"),
}


def wait_graph(found: DeadlockError | Mapping[int, Standing]) -> Any:
    """Draw what the guard has found: the error that it raised, or who stands where.

    In a collective a rank waits for those who are not in it; of a receive from any rank all arrows are dashed, for one
    of them is enough. Raises UserError for a DeadlockError of ranks that nobody guarded.
    """
    standings = found.standings if isinstance(found, DeadlockError) else found
    if not standings:
        raise UserError(
            "this DeadlockError does not say who waits for whom: let the guard watch the ranks "
            "(minidist.comm.guard.watch(comm) as the first line of each rank's program), and catch it again"
        )
    ranks, never = sorted(standings), stuck(standings)
    radius = max(0.75, len(ranks) * 0.12)
    height = 0.45 + max(2 * radius + 2 * AROUND + 0.2, 0.42 * len(ranks)) + 0.35
    kind = f": {found.kind}" if isinstance(found, DeadlockError) else ""
    figure, ax = canvas(height, f"Who waits for whom{kind}")
    middle = EDGE + AROUND + 0.1 + radius, (height + 0.1) / 2
    at = {
        rank: (
            middle[0] + radius * sin(2 * pi * n / len(ranks)),
            middle[1] - radius * cos(2 * pi * n / len(ranks)),
        )
        for n, rank in enumerate(ranks)
    }
    for rank in ranks:
        for peer in waits_for(rank, standings):
            _arrow(ax, at[rank], at[peer], standings[rank].waits_in.peer == -1)
    left = middle[0] + radius + AROUND + 0.35
    for n, rank in enumerate(ranks):
        state = "stuck" if rank in never else standings[rank].state
        _circle(ax, at[rank], str(rank), state)
        y = middle[1] + (n - (len(ranks) - 1) / 2) * 0.42
        room = style.WIDTH - EDGE - left
        doing, where = _words(standings[rank])
        write(ax, left, y - 0.09, short(f"rank {rank}: {doing}", room))
        write(ax, left + 8 * LETTER / 2, y + 0.09, short(where, room - 8 * LETTER / 2), color="#404040")
    said = "orange: can never go on" if never else "nobody is stuck"
    write(
        ax,
        EDGE,
        height - 0.15,
        f"{said}; an arrow leads to whom a rank waits for, dashed ones to whoever comes first",
    )
    return figure


def waits_for(rank: int, standings: Mapping[int, Standing]) -> list[int]:
    """Say which ranks this one needs, and has not yet, to complete what it waits in."""
    if standings[rank].state != "waits":
        return []
    op = standings[rank].waits_in
    if op.sequence is None:
        return [peer for peer in op.members if peer != rank] if op.peer in (-1, None) else [op.peer]

    def is_here(peer: int) -> bool:
        there = standings[peer]
        same = (op.key, op.sequence)
        return there.state == "waits" and (there.waits_in.key, there.waits_in.sequence) == same

    return [peer for peer in op.members if not is_here(peer)]


def _words(standing: Standing) -> tuple[str, str]:
    if standing.state == "waits":
        file, _, line = standing.waits_in.line.rpartition(":")
        return standing.waits_in.words().removesuffix(" on 'world'"), f"{basename(file)}:{line}"
    return ("runs", "") if standing.state == "runs" else ("has finished", "")


def _circle(ax: Any, place: tuple[float, float], text: str, state: str) -> None:
    from matplotlib.patches import Circle

    colour, line = LOOKS[state]
    width = 2.2 if state == "stuck" else 1.0
    ax.add_patch(
        Circle(
            place, AROUND, facecolor=colour, edgecolor=style.BLACK, linewidth=width, linestyle=line, zorder=3
        )
    )
    ax.text(*place, text, ha="center", va="center_baseline", fontsize=style.TEXT, zorder=4)


def _arrow(ax: Any, start: tuple[float, float], end: tuple[float, float], dashed: bool) -> None:
    """Draw an arrow from the edge of one circle to that of the other, a little bent: there may be one back."""
    edge = AROUND + 0.03
    if start == end:  # it waits for itself: round from the left side to the right
        tail, head, bend = (start[0] - edge, start[1]), (start[0] + edge, start[1]), 1.8
    else:
        length = hypot(end[0] - start[0], end[1] - start[1])
        x, y = (end[0] - start[0]) / length * edge, (end[1] - start[1]) / length * edge
        tail, head, bend = (start[0] + x, start[1] + y), (end[0] - x, end[1] - y), 0.12
    how = {"arrowstyle": "-|>", "color": style.BLACK, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    how |= {"connectionstyle": f"arc3,rad={bend}", "linestyle": "--" if dashed else "-"}
    ax.annotate("", head, tail, arrowprops=how, zorder=2)
