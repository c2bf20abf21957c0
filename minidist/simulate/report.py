"""What a simulation has found, in words and as a small picture.

rank 0  FFFF..BBBBBBBB.U      a column is a stretch of time: what most of it was spent on
rank 1  ..FFFFBBBBBBBB.U      F forward, B backward, W weights' part of it, U update, . waiting
"""

from collections.abc import Sequence

import numpy as np

from minidist.plan.cluster import Cluster
from minidist.plan.memory import Held
from minidist.trace.timeline import COMPUTES, Timeline

LETTERS = {"forward": "F", "backward": "B", "weights": "W", "update": "U", "compute": "C"}
MOST_RANKS, COLUMNS = 16, 100


def tell(timeline: Timeline, cluster: Cluster, examples: int, held: Sequence[list[Held]]) -> str:
    """Put it into one text. held: what each kind of rank holds."""
    facts, seconds = timeline.facts, timeline.seconds()
    step = facts["seconds_per_step"]
    ranks = facts["ranks"]
    machines = len(set(cluster.places(ranks)))
    mesh = ", ".join(f"{axis}={size}" for axis, size in facts["mesh"].items())
    lines = [
        f"{ranks:,} ranks on {machines:,} machine{'s' * (machines > 1)} of {cluster.name!r}: {mesh}",
        f"simulated, nothing was run; played: {facts['played']}",
        "",
        f"a step takes {time(step)}: {examples / step:,.0f} examples a second",
    ]
    played = {span.rank for span in timeline.spans}
    for kind, each in seconds.items():
        told = each[sorted(played)] / facts["steps"]
        word = "waiting" if kind == "idle" else kind
        lines.append(
            f"  {word:<20}{time(told.min()):>10} to {time(told.max()):<10} {told.max() / step:>5.0%}"
        )
    bubble = timeline.bubble()[sorted(played)]
    lines.append(f"  {'idle share':<20}{bubble.min():>10.0%} to {bubble.max():.0%}")
    sent = np.array(facts["sent"]) / facts["steps"]
    lines.append(f"  {'sends':<20}{size(sent.min()):>10} to {size(sent.max())}")
    most = [sum(part.nbytes for part in rank) for rank in held]
    always = [sum(part.nbytes for part in rank if part.always) for rank in held]
    lines.append(f"  {'holds':<20}{size(min(always)):>10} to {size(max(always))}, at most {size(max(most))}")
    lines.append("  (not in it: what layers keep for their backward, the data, and Python itself)")
    if ranks <= MOST_RANKS:
        lines += ["", *picture(timeline)]
    return "\n".join(lines)


def picture(timeline: Timeline) -> list[str]:
    """Draw a row for each rank."""
    column = (timeline.stop - timeline.start) / COLUMNS or 1.0
    spent = {kind: np.zeros((timeline.ranks, COLUMNS)) for kind in COMPUTES}
    for span in timeline.spans:
        if span.kind in COMPUTES:
            first, last = (span.start - timeline.start) / column, (span.stop - timeline.start) / column
            for place in range(int(first), min(COLUMNS, int(np.ceil(last)))):
                spent[span.kind][span.rank, place] += min(last, place + 1) - max(first, place)
    rows = []
    for rank in range(timeline.ranks):
        cells = []
        for place in range(COLUMNS):
            most = max(COMPUTES, key=lambda kind: spent[kind][rank, place])
            busy = sum(spent[kind][rank, place] for kind in COMPUTES)
            cells.append(LETTERS[most] if busy >= 0.5 else ".")
        rows.append(f"rank {rank:<4}{''.join(cells)}")
    return [
        *rows,
        f"{'':<9}F forward, B backward, W weights, U update, . waiting; a column is {time(column)}",
    ]


def time(seconds: float) -> str:
    """Write seconds with three digits."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return "0" if seconds < 5e-10 else f"{seconds * 1e9:.0f} ns"


def size(nbytes: float) -> str:
    """Write bytes with three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} TB"
